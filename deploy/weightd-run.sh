#!/bin/sh
# weightd-run.sh KEY [--from SOURCE] -- COMMAND [ARGUMENT ...]
#
# What `weightd run` does, by curl and flock alone, for images without Python: have the model
# here, pin it while this starts, take the kernel's hold on its directory, see that both are true,
# let the pin go, and become the command, in which {path} is the directory.  The hold is
# descriptor 9: it keeps the model for as long as the command, or a child that has it, is there.
#
# Exits as weightd does before it becomes the command: 1 error, 2 usage, 3 not here, 4 too large,
# 5 blocked, 6 no daemon.  WEIGHTD_SOCKET says where the daemon is, WEIGHTD_ROOT where its root is
# mounted here if elsewhere, WEIGHTD_WAIT how many seconds to wait for room and for the download
# (3600).
set -eu

pinned=
fail() {
    code=$1; shift
    echo "weightd-run.sh: $*" >&2
    [ -z "$pinned" ] || curl -s --unix-socket "$socket" -X DELETE "$pinned" || :
    exit "$code"
}
usage() { fail 2 "$1; usage: weightd-run.sh KEY [--from SOURCE] -- COMMAND [ARGUMENT ...]"; }

key=${1:-} source=
case $key in '' | -*) usage 'no KEY' ;; *[!A-Za-z0-9._/@-]*) usage "$key is not a key" ;; esac
shift
if [ "${1:-}" = --from ]; then
    [ $# -ge 2 ] || usage 'no SOURCE'
    source=$2
    shift 2
fi
case $source in *[\"\\]*) usage 'a SOURCE has neither quotes nor backslashes' ;; esac
case ${1:-} in
--) shift ;;
-*) usage "$1 is not known here" ;;
*) usage 'no -- before the command' ;;
esac
[ $# -gt 0 ] || usage 'no COMMAND'
command -v "$1" >/dev/null || usage "there is no command $1"
case "$*" in *'{path}'* | *WEIGHTD_PATH*) ;; *) usage '{path} is nowhere in the command' ;; esac

socket=${WEIGHTD_SOCKET:-/run/weightd/weightd.sock}
# Unique on the node: two containers may both be pid 1, and one pid may follow another.
read -r boot </proc/sys/kernel/random/boot_id
namespace=$(readlink "/proc/$$/ns/pid" | tr -dc 0-9)
holder=${POD_UID:-${boot%%-*}}:$namespace.$$.$(cut -d' ' -f22 "/proc/$$/stat")

# Say what the daemon answers; what it refuses ends this with the code of the refusal.
call() {
    status=0
    answer=$(curl -s --fail-with-body --unix-socket "$socket" "$@") || status=$?
    [ $status -ne 0 ] || return 0
    [ $status -ne 2 ] || fail 1 'this curl knows no --fail-with-body; 7.76 and newer do'
    if [ $status -ne 22 ]; then
        [ ! -e "$socket" ] || [ -w "$socket" ] || fail 6 "this user may not open $socket; \
name the daemon's --replica-socket in WEIGHTD_SOCKET"
        fail 6 "no daemon answers at $socket; start it, or name its socket in WEIGHTD_SOCKET"
    fi
    case $answer in
    *'"code":"not-resident"'*) code=3 ;;
    *'"code":"too-large"'*) code=4 ;;
    *'"code":"blocked"'*) code=5 ;;
    *) code=1 ;;
    esac
    answer=${answer#*'"detail":"'}
    fail $code "${answer%%'","'*}"
}

pin=http://localhost/v1/pins/$holder/$key?ttl=120
if [ -n "$source" ]; then
    call -H 'Accept: text/plain' -H 'Content-Type: application/json' \
        -d "{\"key\":\"$key\",\"source\":\"$source\",\"holder\":\"$holder\",\"ttl\":120}" \
        "http://localhost/v1/fetch?wait=${WEIGHTD_WAIT:-3600}"
    [ -n "$answer" ] || fail 1 "$key is not here after ${WEIGHTD_WAIT:-3600} s; its fetch goes on"
else
    call -H 'Accept: text/plain' -X PUT "$pin"
fi
path=$answer pinned=${pin%%\?*}
# The daemon's root, and three names below it: models, the copy, the model.
root=${path%/*/*/*}
[ -z "${WEIGHTD_ROOT:-}" ] || path=${WEIGHTD_ROOT%/}${path#"$root"}

# A shell ends at once where exec cannot open.
[ -d "$path" ] && [ -r "$path" ] ||
    fail 1 "$path cannot be opened; mount the daemon's $root at the same place, or at one that \
WEIGHTD_ROOT names"
exec 9<"$path"
tries=0
until flock -sn 9; do
    # weightd tries it for an instant now and then; nobody else locks it alone.
    tries=$((tries + 1))
    [ $tries -lt 10 ] || fail 1 "$path is locked by another process for itself alone"
    sleep 1
done
[ "/proc/$$/fd/9" -ef "$path" ] || fail 1 "$path is another directory than a moment ago"
tries=0
call -X PUT "$pin"
until case $answer in *'"held":true'*) true ;; *) false ;; esac; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || fail 1 "weightd does not see the hold on $path; keep it by a pin instead"
    sleep 1
    call -X PUT "$pin"
done
call -X DELETE "$pinned"

for argument; do
    shift
    while case $argument in *'{path}'*) true ;; *) false ;; esac; do
        argument=${argument%%'{path}'*}$path${argument#*'{path}'}
    done
    set -- "$@" "$argument"
done
export WEIGHTD_PATH="$path" WEIGHTD_KEY="$key"
exec "$@"
