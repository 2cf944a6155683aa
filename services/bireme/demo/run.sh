#!/usr/bin/env bash
# The demo: writes the sample to a Lance table, indexes it, starts both tiers on loopback, and finds rows in four
# ways. Serves until Ctrl-C; with ONCE=1 it stops at the end.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bireme=${BIREME:?the path of the bireme binary}
home=${XDG_CACHE_HOME:-$HOME/.cache}/bireme/demo
table=$home/wordnet.lance
ready=$home/ready.json

# The name by which a shell finds the binary, so that a printed line can be pasted.
shown=$bireme
[ "$(command -v bireme || true)" -ef "$bireme" ] && shown=bireme

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
    printf '\033[2m$ %s' "$shown"
    # In quotes where a shell needs them.
    for word in "$@"; do
        case $word in *[!A-Za-z0-9_./=,:-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\033[0m\n'
    "$bireme" "$@"
}

rm -rf "$home"
mkdir -p "$home"

say "A table: 6,927 synsets of WordNet, each with a 384-dimension embedding"
run ingest "$here/wordnet-sample.parquet" --table "$table" --key synset
run index --table "$table" --vector vector --metric cosine --text gloss --positions --scalar domain --key synset

say "Both tiers: a query node and an I/O node, on loopback"
"$bireme" up --table "wordnet=$table" --cache-dir "$home/cache" --cache-size 256MiB \
    --listen 127.0.0.1:"${PORT:-7070}" --ready-file "$ready" &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM
until [ -s "$ready" ]; do
    kill -0 $server 2>/dev/null || { wait $server; exit 1; }
    sleep 0.05
done
export BIREME_ENDPOINT=http://127.0.0.1:${PORT:-7070}

say "Fill the drive ahead of use"
run warm wordnet

say "A vector search: what is like an elephant?"
run search wordnet --like n02503517 -k 5 --columns synset,words,gloss --explain

say "A text search"
run search wordnet --text "hot spicy soup" -k 5 --columns synset,words,gloss

say "A filtered search: the same elephant, but only among foods (domain 13)"
run search wordnet --like n02503517 --filter "domain = 13" -k 5 --columns words,domain,gloss

say "A look-up by key"
run get wordnet n02503517 n07583197

say "What it took"
run status

if [ "${ONCE:-}" = 1 ]; then
    say "Done"
    exit 0
fi
elsewhere=
[ "${PORT:-7070}" = 7070 ] || elsewhere="export BIREME_ENDPOINT=$BIREME_ENDPOINT"
cat <<EOF

Serving on $BIREME_ENDPOINT until Ctrl-C. In another terminal:

${elsewhere:+  $elsewhere
}  $shown search wordnet --text "storm at sea" -k 3
  $shown describe wordnet
  $shown bench search wordnet --seconds 5
EOF
wait $server
