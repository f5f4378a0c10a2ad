package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Frame is the entries that one write made durable.
type Frame struct {
	// Number is one higher than that of the last frame with entries. The first is 1.
	Number uint64
	// First is the number of the first entry; the number of the next one if the frame has none.
	First uint64
	// Viewed and Checkpoint are what the methods of these names were called with last, before the frame was written.
	Viewed, Checkpoint uint64
	// Entries are lines without their ends. They are part of a buffer and must not be changed.
	Entries [][]byte
	// Segment and Offset are the place of the frame.
	Segment uint64
	Offset  int64
}

// Last returns the number of the last entry, First-1 if there is none.
func (f *Frame) Last() uint64 { return f.First + uint64(len(f.Entries)) - 1 }

// frameHeader is the first line of a frame.
type frameHeader struct {
	number, first      uint64
	count, size        int // entries, and their bytes with line ends
	viewed, checkpoint uint64
	sum                uint32
}

const (
	frameStart  = "#F "
	frameFormat = frameStart + "%015d lsn %015d count %07d bytes %010d viewed %015d checkpoint %015d crc32c %08x\n"
	// frameHeaderSize is the length of each line of frameFormat.
	frameHeaderSize = 3 + 15 + 5 + 15 + 7 + 7 + 7 + 10 + 8 + 15 + 12 + 15 + 8 + 8 + 1
	// summedSize is the length of what the checksum covers of such a line.
	summedSize = frameHeaderSize - len(" crc32c 00000000\n")
)

// seal writes the header of a frame into the first bytes of buf, which has room for it and holds the lines behind it.
func seal(buf []byte, segment uint64, h frameHeader) {
	h.size, h.sum = len(buf)-frameHeaderSize, 0
	h.write(buf)
	h.sum = checksum(segment, buf)
	h.write(buf)
}

func (h *frameHeader) write(buf []byte) {
	_ = fmt.Appendf(buf[:0], frameFormat, h.number, h.first, h.count, h.size, h.viewed, h.checkpoint, h.sum)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C (RFC 3720, appendix B.4) of the number of a segment and of a frame without its checksum.
func checksum(segment uint64, frame []byte) uint32 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(nil, segment), castagnoli)
	sum = crc32.Update(sum, castagnoli, frame[:summedSize])
	return crc32.Update(sum, castagnoli, frame[frameHeaderSize:])
}

// parseFrame returns the frame at the start of data, and its size; false if there is no whole one.
func parseFrame(segment uint64, data []byte) (f *Frame, size int, ok bool) {
	if len(data) < frameHeaderSize || !bytes.HasPrefix(data, []byte(frameStart)) {
		return nil, 0, false
	}
	var h frameHeader
	_, err := fmt.Sscanf(string(data[:frameHeaderSize]), frameFormat, &h.number, &h.first, &h.count, &h.size, &h.viewed,
		&h.checkpoint, &h.sum)
	if err != nil || h.count < 0 || h.size < h.count || h.size > len(data)-frameHeaderSize {
		return nil, 0, false
	}
	size = frameHeaderSize + h.size
	data = data[:size:size]
	exact := make([]byte, frameHeaderSize) // Sscanf takes other forms of a number too
	if h.write(exact); !bytes.Equal(exact, data[:frameHeaderSize]) {
		return nil, 0, false
	}
	lines := data[frameHeaderSize:]
	if checksum(segment, data) != h.sum || bytes.Count(lines, newline) != h.count || !bytes.HasSuffix(lines, newline[:min(1, h.count)]) {
		return nil, 0, false
	}
	f = &Frame{Number: h.number, First: h.first, Viewed: h.viewed, Checkpoint: h.checkpoint, Segment: segment}
	if h.count > 0 {
		f.Entries = bytes.Split(lines[:len(lines)-1], newline)
	}
	return f, size, true
}

var newline = []byte("\n")
