package blockrec

import "maps"

// Block is what a disk writes whole or not at all.
const Block = 4096

// Image is the content of a disk. Its blocks are never changed in place, so copies share them.
type Image struct {
	size   int64
	blocks map[int64][]byte // by number; a missing block is zero
}

// Blank is a disk full of zeros. The size is rounded down to whole blocks.
func Blank(size int64) *Image {
	return &Image{size / Block * Block, make(map[int64][]byte)}
}

// Size is in bytes.
func (m *Image) Size() int64 { return m.size }

func (m *Image) clone() *Image { return &Image{m.size, maps.Clone(m.blocks)} }

var zeros [Block]byte

// read copies what is at an offset, as far as the disk goes, and returns how much that is.
func (m *Image) read(into []byte, offset int64) int {
	into = into[:max(0, min(int64(len(into)), m.size-offset))]
	for done := 0; done < len(into); {
		at := offset + int64(done)
		block := m.blocks[at/Block]
		if block == nil {
			block = zeros[:]
		}
		done += copy(into[done:], block[at%Block:])
	}
	return len(into)
}

// write stores data, which must not be modified afterwards.
func (m *Image) write(offset int64, data []byte) {
	for len(data) > 0 {
		number, from := offset/Block, offset%Block
		part := data[:min(int64(len(data)), Block-from)]
		block := part
		if len(part) < Block {
			block = make([]byte, Block)
			copy(block, m.blocks[number])
			copy(block[from:], part)
		}
		m.blocks[number] = block
		offset += int64(len(part))
		data = data[len(part):]
	}
}

// zero makes a range zero. What fills whole blocks needs no memory.
func (m *Image) zero(offset, length int64) {
	for length > 0 {
		number, from := offset/Block, offset%Block
		part := min(length, Block-from)
		if part == Block {
			delete(m.blocks, number)
		} else if m.blocks[number] != nil {
			m.write(offset, zeros[:part])
		}
		offset += part
		length -= part
	}
}
