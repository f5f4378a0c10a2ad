package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// plain turns a value of the database into JSON that any program reads: UTF-8, indented, members in their order. What
// JSON has no type for becomes text: times in RFC 3339, ObjectIDs and UUIDs as hexadecimal digits, bytes in base64;
// the rest as MongoDB writes it in extended JSON.
func plain(v bson.RawValue) ([]byte, error) {
	var compact, out bytes.Buffer
	if err := writePlain(&compact, v); err != nil {
		return nil, err
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("the prediction does not become JSON: %w", err)
	}
	return out.Bytes(), nil
}

func writePlain(out *bytes.Buffer, v bson.RawValue) error {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		return writeMembers(out, v.Document())
	case bson.TypeArray:
		return writeElements(out, v.Array())
	case bson.TypeString:
		return writeText(out, v.StringValue())
	case bson.TypeSymbol:
		text, _ := v.SymbolOK()
		return writeText(out, text)
	case bson.TypeObjectID:
		return writeText(out, v.ObjectID().Hex())
	case bson.TypeDateTime:
		return writeText(out, v.Time().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	case bson.TypeBinary:
		return writeBinary(out, v)
	case bson.TypeDouble:
		if f := v.Double(); math.IsNaN(f) || math.IsInf(f, 0) {
			return writeText(out, v.String()[len(`{"$numberDouble":"`):len(v.String())-len(`"}`)])
		}
		out.WriteString(formatDouble(v.Double()))
	case bson.TypeInt32:
		out.WriteString(strconv.FormatInt(int64(v.Int32()), 10))
	case bson.TypeInt64:
		out.WriteString(strconv.FormatInt(v.Int64(), 10))
	case bson.TypeDecimal128:
		d := v.Decimal128()
		if d.IsNaN() || d.IsInf() != 0 {
			return writeText(out, d.String())
		}
		out.WriteString(d.String())
	case bson.TypeBoolean:
		out.WriteString(strconv.FormatBool(v.Boolean()))
	case bson.TypeNull, bson.TypeUndefined:
		out.WriteString("null")
	default:
		out.WriteString(v.String())
	}
	return nil
}

// formatDouble writes the shortest text that reads back as the same number and still shows that it is no whole number
// of an integer type: 1.0, 0.0001, 1e-07, 1e+16. This is the form of Python's json.dumps, with which most predictions
// are written.
func formatDouble(f float64) string {
	if e := math.Abs(f); e != 0 && (e < 1e-4 || e >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func writeMembers(out *bytes.Buffer, doc bson.Raw) error {
	elements, err := doc.Elements()
	if err != nil {
		return fmt.Errorf("the prediction cannot be read: %w", err)
	}
	out.WriteByte('{')
	for i, e := range elements {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writeText(out, e.Key()); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := writePlain(out, e.Value()); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func writeElements(out *bytes.Buffer, array bson.RawArray) error {
	values, err := array.Values()
	if err != nil {
		return fmt.Errorf("the prediction cannot be read: %w", err)
	}
	out.WriteByte('[')
	for i, v := range values {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writePlain(out, v); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func writeBinary(out *bytes.Buffer, v bson.RawValue) error {
	subtype, data := v.Binary()
	if subtype == bson.TypeBinaryUUID && len(data) == 16 {
		h := hex.EncodeToString(data)
		return writeText(out, h[:8]+"-"+h[8:12]+"-"+h[12:16]+"-"+h[16:20]+"-"+h[20:])
	}
	return writeText(out, base64.StdEncoding.EncodeToString(data))
}

func writeText(out *bytes.Buffer, text string) error { return writeJSON(out, text) }

// writeJSON writes a string; characters that HTML would trip over stay as they are.
func writeJSON(out *bytes.Buffer, value any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("the prediction does not become JSON: %w", err)
	}
	out.Truncate(out.Len() - 1) // the encoder ends with a line end
	return nil
}
