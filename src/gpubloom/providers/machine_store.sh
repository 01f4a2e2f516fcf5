#!/bin/sh
# Gives and takes the files of a job over SSH. It is the only command that the key of the server may run on
# this machine (`command=` in authorized_keys), and reaches nothing outside the folder `store` beside it.
#
#   put NAME SIZE   store what comes in, all of it or nothing
#   get NAME        status 3: there is no such file
#   list FOLDER     size and name of every file
#   delete NAME…    what is not there is fine

umask 077
cd "$(dirname "$0")/store" || exit 1
set -f
# shellcheck disable=SC2086
set -- $SSH_ORIGINAL_COMMAND
action=$1
[ $# -ge 2 ] || exit 2
shift

for name; do
  case $name in
    *[!A-Za-z0-9._/-]* | */.* | .* | /*) exit 2 ;;
  esac
done

case $action in
  put)
    part="${1%/*}/.${1##*/}.part"
    mkdir -p "${1%/*}" && cat >"$part" || exit 1
    # A connection that broke must leave no half of a file.
    [ "$(stat -c %s "$part")" = "$2" ] || exit 1
    sync "$part" 2>/dev/null
    mv -f "$part" "$1"
    ;;
  get)
    [ -f "$1" ] || exit 3
    cat "$1"
    ;;
  list)
    [ -d "$1" ] || exit 0
    find "$1" -type f ! -name '.*' -exec stat -c '%s %n' {} +
    ;;
  delete) rm -f "$@" ;;
  *) exit 2 ;;
esac
