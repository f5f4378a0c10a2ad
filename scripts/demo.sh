#!/bin/sh
# Shows jobdir at work on a storage directory that is removed at the end: builds it, starts a daemon, streams an operation over
# the files of this repository, and pauses, resumes and cancels another one with touch. Ends by itself with everything stopped.
#
#	scripts/demo.sh [PROGRAM]	with a program that is built already
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/jobdir-demo.XXXXXX")
daemon= reader=

cleanup() {
	status=$?
	trap - EXIT INT TERM HUP
	for process in $reader $daemon; do
		kill "$process" 2>/dev/null || true # it may have ended already
		wait "$process" 2>/dev/null || true
	done
	if [ "$status" -ne 0 ] && [ "$status" -lt 128 ] && [ -s "$dir/daemon.log" ]; then
		echo "The daemon said:" >&2
		cat "$dir/daemon.log" >&2
	fi
	rm -rf "$dir"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() {
	echo
	printf '# %s\n' "$@"
}
fail() {
	printf 'demo: %s\n' "$*" >&2
	exit 1
}

# typed shows a command line as a person would type it, and runs it.
typed() {
	printf '$ %s\n' "$*"
	eval "$*"
}

# await returns when a test of a file holds. The shell cannot wait for a file, so it looks, for ten seconds at most.
await() {
	tries=0
	until test "$@"; do
		tries=$((tries + 1))
		[ "$tries" -le 100 ] || fail "waited in vain until: test $*"
		sleep 0.1
	done
}

# pass prints lines of the stream on descriptor 4 up to one that begins with the given text, or to the end.
pass() {
	while IFS= read -r line <&4; do
		printf '%s\n' "$line"
		case $line in "${1:-</end_json>}"*) return ;; esac
	done
	fail "the stream ended early"
}

# What the settings of the person who runs this say about other daemons does not count here.
for name in $(env | sed -n 's/^\(JOBDIR_[A-Z_]*\)=.*/\1/p'); do
	unset "$name"
done

program=${1:-$root/bin/jobdir}
if [ $# -eq 0 ]; then
	say "Build bin/jobdir"
	cd "$root"
	CGO_ENABLED=0 "${GO:-go}" build -trimpath -o bin/jobdir .
fi

say "Start a daemon. Its whole state is one directory, here a temporary one."
printf '$ jobdir serve --jobs jobs-example --storage storage --listen 127.0.0.1:0\n'
mkfifo "$dir/said" "$dir/stream"
(cd "$dir" && exec "$program" serve --jobs "$root/jobs-example" --storage "$dir/storage" --listen 127.0.0.1:0) >"$dir/said" 2>&1 &
daemon=$!
exec 3<"$dir/said"
url=
while [ -z "$url" ] && IFS= read -r line <&3; do
	printf '%s\n' "$line" >>"$dir/daemon.log"
	url=$(printf '%s\n' "$line" | sed -n 's/^jobdir: serving \(http:[^ ,]*\).*/\1/p')
done
[ -n "$url" ] || fail "the daemon did not start"
cat <&3 >>"$dir/daemon.log" & # ends with the daemon
cd "$dir/storage"
printf '%s\n' "$line"

# start streams a new operation: start GROUP/JOB NAME=VALUE
if command -v curl >/dev/null 2>&1; then
	start() {
		printf "$ curl -NG %s --data-urlencode '%s'\n" "$url/$1" "$2"
		exec curl -sSfN --noproxy '*' -G "$url/$1" --data-urlencode "$2"
	}
else
	start() {
		printf "$ jobdir run --raw %s '%s'\n" "$1" "$2"
		exec "$program" --server "$url" run --raw "$1" "$2" 2>/dev/null
	}
fi

say "One request starts an operation and streams it: the SHA-256 of every file of this repository." \
	"A header, the log while it grows, and the result. (Most lines are left out here.)"
start files/checksum "path=$root" | tee "$dir/checksum" | awk '
	/^<log>/ || /_files": \[/ { shown = 0; print; next }
	/^\[ / || /^  OK/ || /^    \{/ { if (++shown <= 4) print; else if (shown == 5) print "    ..."; next }
	{ print }
'
grep -q '^  "state": "completed"' "$dir/checksum" || fail "files/checksum did not go to its end"

say "A longer operation. Its marker in jobs/ is its state, so ls is the list of active operations."
start testrouter/streaming01 files=1000 >"$dir/stream" &
reader=$!
exec 4<"$dir/stream"
pass '[ 4 /'
id=$(ls jobs | sed -n 's/\.running$//p')
[ -n "$id" ] || fail "no operation is running"
typed 'ls jobs'

say "Creating a file pauses it ..."
typed "touch jobs/$id.pause_requested"
pass '  Pause requested'
await -e "jobs/$id.paused"
typed 'ls jobs'

say "... and another one lets it go on. (An endpoint does the same: POST /api/v1/operations/ID/resume)"
typed "touch jobs/$id.resume_requested"
pass '  Resume requested'
await -e "jobs/$id.running"
typed 'ls jobs'
pass '[ 8 /'

say "Cancel it, the same way. The stream ends with the result, the record and the log stay."
typed "touch jobs/$id.cancel_requested"
pass '</end_json>'
wait "$reader" || [ $? -eq 130 ] || fail "the stream broke off" # 130: the client says that it was cancelled
reader=
await ! -e "jobs/$id.running"
typed 'ls jobs'
typed 'ls operations/*'

say "Stop the daemon and remove the directory."
kill "$daemon"
wait "$daemon" || fail "the daemon ended with code $?"
daemon=
say "That was all. 'make run' keeps a daemon for you to play with; README.md tells more."
