// Package front is the part of an HTTP server that needs no knowledge of jobs: it decides which requests reach a
// handler, limits what a client can cost, and writes every refusal as a problem (RFC 9457).
//
//	listener ─▶ connLimiter ─▶ Server.ServeHTTP ─▶ guard, limits ─▶ table of routes ─▶ Handler(*Response, *Request)
//	              503           421 414 431 413       401 403          404 405 501          │
//	                                                                                       error ─▶ Refusal
//
// The user gives a table of routes, from which the router and [Describe]'s OpenAPI document are built, and a function
// that maps the errors of its handlers to refusals. A handler reads parameters and the body through [Request], and
// answers through [Response]; an answer that grows while its client waits is a [Stream]. Nothing here knows an
// operation, a file of the storage or the daemon.
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	server       accepts connections, hands requests on  server.go, dispatch.go, openapi.go
//	exchange     what a handler works with               config.go, routes.go, request.go, response.go, parameters.go,
//	                                                     prefer.go, confirm.go, socket.go, stream.go
//	connections  their number, memory and speed          conn.go, connlimit.go, memory.go, slowclient.go
//	guard        who gets in, sizes, refusals            guard.go, token.go, limits.go, problem.go
//
// # What happens on failure
//
// A fault of the program is logged with a number, which its answer contains. A panic ends its own request only. After
// the first byte of an answer, an error can only be shown by closing the connection.
package front
