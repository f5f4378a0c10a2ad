package stream

import (
	"fmt"
	"slices"
)

// The frame of the text form. The parser splits it at different places, see [Parser].
const (
	openHeader  = "<start_json>\n"
	closeHeader = "\n</start_json>"
	openLog     = "\n<log>\n"
	closeLog    = "</log>"
	openFooter  = "\n<end_json>\n"
	closeFooter = "\n</end_json>"
)

// head returns everything before the log.
func head(header []byte) ([]byte, error) {
	line, err := headerLine(header)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(openHeader), line, []byte(closeHeader), []byte(openLog)), nil
}

// tail returns rest, the end of the escaped log, and everything after the log.
func tail(rest, footer []byte) ([]byte, error) {
	lines, err := footerLines(footer)
	if err != nil {
		return nil, err
	}
	return slices.Concat(rest, []byte(closeLog), []byte(openFooter), lines, []byte(closeFooter), []byte("\n")), nil
}

func headerLine(header []byte) ([]byte, error) {
	line, err := oneLine(header)
	if err != nil {
		return nil, fmt.Errorf("compose the stream: the header in the record is not JSON: %w", err)
	}
	return line, nil
}

func footerLines(footer []byte) ([]byte, error) {
	lines, err := pretty(footer)
	if err != nil {
		return nil, fmt.Errorf("compose the stream: the footer in the record is not a JSON object: %w", err)
	}
	return lines, nil
}
