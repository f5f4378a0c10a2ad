package stream_test

import (
	"fmt"
	"io"
	"strings"

	"github.com/jobdir/jobdir/stream"
)

func ExampleParser() {
	body := strings.NewReader(`<start_json>
{"id": "files-checksum_2025-11-26_13-22-00_p16384_r42", "total": 1}
</start_json>
<log>
[ 1 / 1 ] Processing 'a.txt'...
  a tag in a log: <\/log>
</log>
<end_json>
{
  "result": "success"
}
</end_json>
`)
	parser := stream.NewParser(stream.Receiver{
		Log:    func(text []byte) error { fmt.Print(string(text)); return nil },
		Footer: func(object []byte) error { fmt.Println(string(object)); return nil },
	}, 0)
	if _, err := io.Copy(parser, body); err != nil {
		fmt.Println(err)
	}
	fmt.Println("cut off:", parser.Close())
	// Output:
	// [ 1 / 1 ] Processing 'a.txt'...
	//   a tag in a log: </log>
	// {
	//   "result": "success"
	// }
	// cut off: <nil>
}
