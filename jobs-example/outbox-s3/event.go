package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxName is how long S3 allows the name of an object to be, in bytes.
const maxName = 1024

// eventID is an _id as text: a string as it is, an ObjectID as 24 hexadecimal digits, a whole number in decimal digits.
func eventID(id bson.RawValue) (string, error) {
	switch id.Type {
	case bson.TypeString:
		return id.StringValue(), nil
	case bson.TypeObjectID:
		return id.ObjectID().Hex(), nil
	case bson.TypeInt32, bson.TypeInt64:
		return strconv.FormatInt(id.AsInt64(), 10), nil
	case bson.TypeDouble:
		const exact = 1 << 53 // above it, a double cannot represent every integer
		if f := id.Double(); f == math.Trunc(f) && math.Abs(f) < exact {
			return strconv.FormatInt(int64(f), 10), nil
		}
	}
	return "", fmt.Errorf("its _id is neither a string nor an ObjectID nor a whole number but of the type %s", id.Type)
}

// key makes an _id comparable: numbers of different types are the same _id to the database.
func key(id bson.RawValue) string {
	text, err := eventID(id)
	switch {
	case err != nil:
		return id.Type.String() + " " + string(id.Value)
	case id.IsNumber():
		return "number " + text
	}
	return id.Type.String() + " " + text
}

// shown is an _id as people read it, on one line.
func shown(id bson.RawValue) string {
	const most = 80
	text, err := eventID(id)
	if err != nil {
		text = id.String()
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strconv.Quote(text)
}

// objectName returns the object name for the prediction of an event. A name never leads out of detection/,
// and is readable for people and valid for file systems.
func objectName(id bson.RawValue) (string, error) {
	event, err := eventID(id)
	if err != nil {
		return "", err
	}
	name := "detection/" + event + ".json"
	switch {
	case event == "":
		return "", errors.New("its _id is empty")
	case event == "." || event == ".." || strings.ContainsAny(event, `/\`):
		return "", errors.New("its _id would lead out of detection/")
	case !utf8.ValidString(event) || strings.ContainsFunc(event, func(r rune) bool {
		return unicode.IsControl(r) ||
			r == '\u2028' || r == '\u2029'
	}):
		return "", errors.New("its _id has control characters, or is not UTF-8")
	case len(name) > maxName:
		return "", fmt.Errorf("its _id makes a name of %d bytes, and %d are allowed", len(name), maxName)
	}
	return name, nil
}
