// Package api has the types of the messages between a daemon and its clients: the server encodes them, the client
// decodes them, and each is written once.
//
//	control ── json.Marshal ──▶ HTTP ──▶ client ── json.Unmarshal
//
// The package has no code but what decoding needs, so a program that imports the client links nothing of the server.
// Messages whose content is also a file are types of statefs. A member is never removed or renamed: clients of earlier
// versions read it.
package api
