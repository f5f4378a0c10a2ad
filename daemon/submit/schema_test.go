package submit

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

const schemaFile = "../../schema/submit.schema.json"

// verdict is who takes an entry.
type verdict int

const (
	both verdict = iota
	neither
	codeAlone   // the schema is stricter
	schemaAlone // a schema cannot express it
)

// What the published schema takes is what the code takes, but for what is listed here with its reason.
func TestSchemaOfEntries(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	many := func(n int, one func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = `"` + one(i) + `"`
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	ids := func(n int) string {
		return many(n, func(i int) string { return fmt.Sprintf("media-fetch_2026-11-22_10-00-00_p7_r%d", i+1) })
	}
	for name, c := range map[string]struct {
		members string // beside the job
		want    verdict
	}{
		"nothing": {``, both},
		"all of it": {`"params":{"a":[1,{"b":null}]},"priority":5,"delay":"1h30m","after":["` + parent +
			`"],"require":"end","tags":["a","ü"],"key":"a b","idempotency_key":"x"`, both},
		"nothing but nulls":   {`"params":null,"priority":null,"delay":null,"not_before":null,"after":null,"require":null,"tags":null,"key":null,"idempotency_key":null`, both},
		"unknown":             {`"prio":5`, neither},
		"another case":        {`"Priority":5`, neither},
		"parameters in list":  {`"params":[1]`, neither},
		"parameters as text":  {`"params":"{}"`, neither},
		"priority lowest":     {`"priority":-1000000`, both},
		"priority low":        {`"priority":-1000001`, neither},
		"priority highest":    {`"priority":1000000`, both},
		"priority high":       {`"priority":1000001`, neither},
		"priority text":       {`"priority":"5"`, neither},
		"priority fraction":   {`"priority":1.5`, neither},
		"priority exponent":   {`"priority":1e2`, schemaAlone}, // to a schema it is the integer 100
		"delay number":        {`"delay":90`, neither},
		"delay without unit":  {`"delay":"90"`, neither},
		"delay negative":      {`"delay":"-5s"`, neither},
		"delay empty":         {`"delay":""`, neither},
		"delay of parts":      {`"delay":"1d2h3m4s5ms"`, both},
		"delay zero":          {`"delay":"0s"`, both},
		"delay in many parts": {`"delay":"` + strings.Repeat("1ms", 21) + `"`, neither},
		"delay long":          {`"delay":"4000d"`, schemaAlone},
		"time":                {`"not_before":"2026-11-23T09:00:00+01:00"`, both},
		"time of a fraction":  {`"not_before":"2026-11-23T09:00:00.123456Z"`, both},
		"time without zone":   {`"not_before":"2026-11-23T09:00:00"`, neither},
		"time word":           {`"not_before":"tomorrow"`, neither},
		"time number":         {`"not_before":1795384800`, neither},
		"time that is none":   {`"not_before":"2026-02-30T09:00:00Z"`, neither},
		"time long ago":       {`"not_before":"1999-12-31T23:59:59Z"`, neither},
		"time far away":       {`"not_before":"9998-12-31T23:59:59Z"`, both},
		"time too far":        {`"not_before":"9999-01-01T00:00:00Z"`, schemaAlone},
		"both times":          {`"not_before":"2026-11-23T09:00:00Z","delay":"1s"`, neither},
		"one time and null":   {`"not_before":"2026-11-23T09:00:00Z","delay":null`, both},
		"time and no delay":   {`"not_before":"2026-11-23T09:00:00Z","delay":"0s"`, codeAlone}, // no conflict
		"after":               {`"after":["` + parent + `"]`, both},
		"after none":          {`"after":[]`, both},
		"after text":          {`"after":"` + parent + `"`, neither},
		"after no ID":         {`"after":["../x"]`, neither},
		"after empty":         {`"after":[""]`, neither},
		"after null":          {`"after":[null]`, neither},
		"after no date":       {`"after":["media-fetch_2026-02-30_10-00-00_p7_r1"]`, schemaAlone},
		"after number zero":   {`"after":["media-fetch_2026-02-20_10-00-00_p7_r0"]`, schemaAlone},
		"after most":          {`"after":` + ids(1000), both},
		"after many":          {`"after":` + ids(1001), neither},
		"after one often":     {`"after":` + many(1001, func(int) string { return parent }), codeAlone}, // it is one
		"require success":     {`"after":["` + parent + `"],"require":"success"`, both},
		"require word":        {`"after":["` + parent + `"],"require":"luck"`, neither},
		"require number":      {`"after":["` + parent + `"],"require":1`, neither},
		"require empty":       {`"after":["` + parent + `"],"require":""`, codeAlone}, // as in a URL
		"require alone":       {`"require":"end"`, neither},
		"require of none":     {`"require":"end","after":[]`, neither},
		"require of null":     {`"require":"end","after":null`, neither},
		"tag empty":           {`"tags":[""]`, neither},
		"tag null":            {`"tags":[null]`, neither},
		"tag number":          {`"tags":[1]`, neither},
		"tag comma":           {`"tags":["a,b"]`, neither},
		"tag space":           {`"tags":["a b"]`, neither},
		"tag line break":      {`"tags":["a\nb"]`, neither},
		"tag hard space":      {`"tags":["a\u00a0b"]`, neither},
		"tag that hides":      {`"tags":["a\u200bb"]`, schemaAlone}, // which characters show is a table of Unicode
		"tag longest":         {`"tags":["` + strings.Repeat("ü", 64) + `"]`, both},
		"tag long":            {`"tags":["` + strings.Repeat("a", 65) + `"]`, neither},
		"tags most":           {`"tags":` + many(32, func(i int) string { return fmt.Sprint("t", i) }), both},
		"tags many":           {`"tags":` + many(33, func(i int) string { return fmt.Sprint("t", i) }), neither},
		"key empty":           {`"key":""`, both},
		"key longest":         {`"key":"` + strings.Repeat("k", catalog.MaxKey) + `"`, both},
		"key long":            {`"key":"` + strings.Repeat("k", catalog.MaxKey+1) + `"`, neither},
		// a schema counts no bytes
		"key of long letters": {`"key":"` + strings.Repeat("ü", catalog.MaxKey) + `"`, schemaAlone},
		"key control":         {`"key":"a\tb"`, neither},
		"key control of C1":   {`"key":"a\u0085b"`, neither},
		"key number":          {`"key":1`, neither},
		"name empty":          {`"idempotency_key":""`, neither},
		"name longest":        {`"idempotency_key":"` + strings.Repeat("k", longestIdempotencyKey) + `"`, both},
		"name long":           {`"idempotency_key":"` + strings.Repeat("k", longestIdempotencyKey+1) + `"`, neither},
		"name control":        {`"idempotency_key":"a\u0000b"`, neither},
		"name number":         {`"idempotency_key":7`, neither},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entry := `{"job":"media/fetch"`
			if c.members != "" {
				entry += "," + c.members
			}
			compareVerdicts(t, schema, entry+"}", c.want)
		})
	}
	for entry, want := range map[string]verdict{
		`{"job":"media/fetch"}`:   both,
		`{"job":"1-a/2_b"}`:       both,
		`{}`:                      neither,
		`{"job":null}`:            neither,
		`{"job":7}`:               neither,
		`{"job":"fetch"}`:         neither,
		`{"job":"/fetch"}`:        neither,
		`{"job":"media/"}`:        neither,
		`[{"job":"media/fetch"}]`: neither, // an element of it is an entry
		`"media/fetch"`:           neither,
		`{"job":"Media/Fetch"}`:   codeAlone, // only a later lookup finds that no job has this address
		`{"job":"a/b/c"}`:         codeAlone,
	} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			compareVerdicts(t, schema, entry, want)
		})
	}
}

func compareVerdicts(t *testing.T, schema *jsonschema.Schema, entry string, want verdict) {
	t.Helper()
	e, code := ParseEntry([]byte(entry))
	if code == nil && e.Params != nil {
		_, code = catalog.ReadObject(e.Params) // as every job does with its parameters
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(entry))
	if err != nil {
		t.Fatal(err)
	}
	published := schema.Validate(value)
	if takes := want == both || want == codeAlone; takes != (code == nil) {
		t.Errorf("the code says %v of %.200s", code, entry)
	}
	if takes := want == both || want == schemaAlone; takes != (published == nil) {
		t.Errorf("the schema says %v of %.200s", published, entry)
	}
}

// The schema names the members and the bounds that the code knows.
func TestSchemaNamesEveryMember(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var published struct {
		Properties map[string]struct {
			Description                           string
			Minimum, Maximum, MaxLength, MaxItems int
		}
	}
	if err := json.Unmarshal(data, &published); err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(append(Names(), memberJob, memberParams, optionIdempotencyKey)))
	if got := slices.Sorted(maps.Keys(published.Properties)); !slices.Equal(got, want) {
		t.Errorf("the schema has %v, want %v", got, want)
	}
	for name, p := range published.Properties {
		if p.Description == "" {
			t.Errorf("%s has no description", name)
		}
	}
	p := published.Properties
	for what, bound := range map[string][2]int{
		"lowest priority":         {p[optionPriority].Minimum, -statefs.MaxPriority},
		"highest priority":        {p[optionPriority].Maximum, statefs.MaxPriority},
		"operations":              {p[optionAfter].MaxItems, maxAfter},
		"tags":                    {p[optionTags].MaxItems, maxTags},
		"longest key":             {p[optionKey].MaxLength, catalog.MaxKey},
		"longest idempotency key": {p[optionIdempotencyKey].MaxLength, longestIdempotencyKey},
	} {
		if bound[0] != bound[1] {
			t.Errorf("%s: the schema has %d, the code %d", what, bound[0], bound[1])
		}
	}
}
