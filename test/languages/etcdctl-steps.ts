/*
 * Of what a watch from a past revision prints, only the responses of one revision are compared: etcd sends all events
 * that such a watch has missed in one response, and a cache sends up to 8 revisions in a response each.
 */

/**
 * Shell functions for the steps. `until_true COMMAND` waits until it succeeds, up to half a minute. `first N COMMAND`
 * runs a command that does not end by itself, until it has printed N lines, and prints them.
 */
export const prelude = `
until_true() { tries=0; until "$@"; do tries=$((tries + 1)); [ $tries -lt 600 ] || return 1; sleep 0.05; done; }
has_lines() { [ "$(wc -l < "$DIR/$1")" -ge "$2" ]; }
started() { name=$1; shift; : > "$DIR/$name"; "$@" > "$DIR/$name" 2>&1 & }
first() {
  count=$1; shift
  started first "$@"; pid=$!
  until_true has_lines first "$count"
  kill $pid; wait $pid; cat "$DIR/first"
}
counted() { [ "$(etcdctl get --prefix "$1" --count-only -w fields | sed -n 's/^"Count" : //p')" = "$2" ]; }
lease() { etcdctl lease list | sed -n 2p; }
learner() { etcdctl member list | sed -n 's/\\([0-9a-f]*\\), unstarted.*/\\1/p'; }
`;

/** Commands of etcdctl that change the store, in the order in which they run. */
export const steps: readonly string[] = [
  "etcdctl version",
  // KV
  "etcdctl put kv/a 1",
  "etcdctl put kv/a 2 --prev-kv",
  "printf 'from standard input' | etcdctl put kv/b",
  "etcdctl put kv/a --ignore-value",
  "etcdctl put kv/none --ignore-value",
  "etcdctl put '' x",
  "etcdctl put kv/c 3 -w json",
  "etcdctl put kv/c 4 -w fields --prev-kv",
  "for i in 1 2 3 4 5; do etcdctl put many/$i $((9 - i)); done",
  "etcdctl put kv/large \"$(head -c 100000 /dev/zero | tr '\\0' x)\"",
  "head -c 1700000 /dev/zero | tr '\\0' x | etcdctl put kv/large",
  "etcdctl get kv/large --print-value-only | wc -c",
  "etcdctl del kv/large --prev-kv | wc -c",
  "etcdctl del kv/none",
  "etcdctl del kv/b kv/d --prev-kv",
  "etcdctl del many/4 --from-key -w json",
  "etcdctl del many/ --prefix -w fields",
  // Transactions
  'printf \'value("kv/a") = "2"\\n\\nput kv/t 1\\nget kv/a\\ndel kv/none\\n\\nget kv/b\\n\\n\' | etcdctl txn',
  'printf \'mod("kv/a") < "2"\\nversion("kv/t") = "1"\\n\\nput kv/t 2\\n\\nget kv/t\\n\\n\' | etcdctl txn',
  'printf \'create("kv/u") = "0"\\n\\nput kv/u 1\\nput kv/v 2\\n\\n\\n\' | etcdctl txn -w json',
  'printf \'ver("kv/u") > "0"\\n\\nput kv/u 1\\nput kv/u 2\\n\\n\\n\' | etcdctl txn',
  'printf \'lease("kv/u") = "0"\\n\\nget kv/ --prefix --limit=1\\n\\n\\n\' | etcdctl txn -i',
  "printf 'nonsense\\n\\n' | etcdctl txn",
  // Watches
  "first 9 etcdctl watch --prefix kv/ --rev 2",
  "first 13 etcdctl watch kv/a --rev 2 --prev-kv",
  "first 1 etcdctl watch kv/u kv/w --rev 2 -w json --prev-kv",
  "first 17 etcdctl watch kv/u kv/w --rev 2 -w fields",
  "first 8 etcdctl watch kv/u kv/w --rev 2 -- echo event",
  "first 4 etcdctl watch kv/v --rev 2 -- sh -c 'echo \"$ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY\"'",
  "etcdctl watch --from-key",
  "ETCDCTL_WATCH_KEY=kv/a first 3 etcdctl watch --rev 2",
  `mkfifo "$DIR/in"; : > "$DIR/watched"; etcdctl watch -i < "$DIR/in" > "$DIR/watched" 2>&1 & exec 9> "$DIR/in"
   echo 'watch live/a' >&9; echo 'watch --prefix live/ --prev-kv' >&9
   asked() { echo progress >&9; grep -q 'progress notify: [1-9]' "$DIR/watched"; }; until_true asked
   etcdctl put live/b 1; etcdctl put live/a 2; etcdctl put live/a 3; etcdctl del live/ --prefix
   seen() { [ "$(grep -vc progress "$DIR/watched")" -ge 30 ]; }; until_true seen
   exec 9>&-; wait; grep -v progress "$DIR/watched" | sort`,
  "echo 'watch live/ --rev x' | etcdctl watch -i",
  // Leases
  "etcdctl lease grant 600",
  'etcdctl put lease/a 1 --lease "$(lease)"',
  'etcdctl put lease/b 2 --lease "$(lease)"',
  "etcdctl put lease/a 2 --ignore-lease",
  "etcdctl put lease/c 3 --lease 1234abcd",
  'etcdctl lease timetolive "$(lease)"',
  'etcdctl lease timetolive "$(lease)" --keys | sed "s/.*attached//" | tr -c "a-z/" "\\n" | sort',
  'etcdctl lease timetolive "$(lease)" -w json',
  'etcdctl lease timetolive "$(lease)" -w fields',
  "etcdctl lease timetolive 1234abcd",
  'etcdctl lease keep-alive --once "$(lease)"',
  'first 1 etcdctl lease keep-alive "$(lease)"',
  "etcdctl lease keep-alive --once 1234abcd",
  "etcdctl lease list",
  "etcdctl lease list -w json",
  "etcdctl get lease/a -w json",
  'etcdctl lease revoke "$(lease)"',
  "etcdctl lease revoke 1234abcd",
  "etcdctl get lease/ --prefix",
  "etcdctl lease grant nonsense",
  "etcdctl lease grant 2 -w json",
  'rev=$(etcdctl put lease/d 1 --lease "$(lease)" -w json | sed "s/.*revision.:\\([0-9]*\\).*/\\1/"); first 5 etcdctl watch lease/d --rev "$rev"',
  "etcdctl lease list",
  // Locks and elections
  "etcdctl lock lock/a echo held",
  "etcdctl lock lock/a sh -c 'echo $ETCD_LOCK_KEY $ETCD_LOCK_REV; exit 3'",
  "etcdctl lock lock/a --ttl 5 etcdctl lease list",
  `started one etcdctl lock lock/b; one=$!; until_true has_lines one 1
   started two etcdctl lock lock/b echo second; two=$!; until_true counted lock/b 2
   kill $one; wait $one; wait $two; cat "$DIR/one" "$DIR/two"`,
  `started one etcdctl elect elect/a me; one=$!; until_true has_lines one 2
   started seen etcdctl elect -l elect/a; seen=$!; until_true has_lines seen 2
   started two etcdctl elect elect/a you; two=$!; until_true counted elect/a 2
   kill $one; wait $one; until_true has_lines two 2; until_true has_lines seen 4
   kill $two $seen; wait $two $seen; cat "$DIR/one" "$DIR/two" "$DIR/seen"`,
  // Members
  "etcdctl member list",
  "etcdctl member add second --learner --peer-urls http://127.0.0.1:9 | tr -d '\"' | tr =, '\\n' | sort",
  "etcdctl member add second --peer-urls nonsense",
  'etcdctl member update "$(learner)" --peer-urls http://127.0.0.1:19',
  "etcdctl member add third --learner --peer-urls http://127.0.0.1:19",
  'etcdctl member promote "$(learner)"',
  "etcdctl move-leader \"$(etcdctl member list | sed -n 's/, started.*//p')\"",
  'etcdctl member remove "$(learner)"',
  "etcdctl member remove 1234abcd",
  "etcdctl endpoint health | sed 's/took = .*//'",
  "etcdctl defrag | sed 's/took .*//'",
  "etcdctl alarm list",
  "etcdctl alarm disarm",
  // A mirror, from the endpoint to itself
  `etcdctl put mirror/a 1; etcdctl put mirror/b 2
   started mirror etcdctl make-mirror --prefix mirror/ --dest-prefix mirrored/ "$ETCDCTL_ENDPOINTS"; mirror=$!
   until_true counted mirrored/ 2; etcdctl put mirror/c 3; etcdctl del mirror/a
   until_true test -n "$(until_true counted mirrored/c 1; echo yes)"; until_true counted mirrored/a 0
   kill $mirror; wait $mirror; etcdctl get mirrored/ --prefix`,
  // Compaction
  "etcdctl compaction 5",
  "etcdctl compaction 5",
  "etcdctl compaction 100000",
  "etcdctl compaction --physical \"$(etcdctl get x -w json | sed 's/.*revision.:\\([0-9]*\\).*/\\1/')\"",
  "etcdctl get kv/a --rev 4",
  "etcdctl get kv/a --rev 100000",
  "etcdctl watch kv/a --rev 4",
  'etcdctl snapshot save "$DIR/snapshot" > /dev/null 2>&1; etcdutl snapshot status "$DIR/snapshot" -w json | sed \'s/"hash":[0-9]*,//;s/"totalSize":[0-9]*//\'',
  // Users
  "etcdctl auth status",
  "etcdctl auth enable",
  "etcdctl user add root:r",
  "etcdctl user add root:r",
  "printf a | etcdctl user add ann --interactive=false",
  "etcdctl user add bob --no-password",
  "etcdctl user list",
  "etcdctl role add reader",
  "etcdctl role add reader",
  "etcdctl role add other -w json",
  "etcdctl role grant-permission reader read kv/ --prefix",
  "etcdctl role grant-permission reader readwrite own/a own/c",
  "etcdctl role grant-permission reader write log/ --from-key",
  "etcdctl role grant-permission reader all x",
  "etcdctl role get reader",
  "etcdctl role get reader -w fields",
  "etcdctl role revoke-permission reader log/ --from-key",
  "etcdctl role revoke-permission reader none",
  "etcdctl role get reader -w json",
  "etcdctl role get none",
  "etcdctl role list",
  "etcdctl user grant-role ann reader",
  "etcdctl user grant-role ann none",
  "etcdctl user grant-role root root",
  "etcdctl user get ann",
  "etcdctl user get ann --detail",
  "printf b | etcdctl user passwd ann --interactive=false",
  "etcdctl auth enable",
  "etcdctl auth status",
  "etcdctl get kv/a",
  "etcdctl --user ann:a get kv/a",
  "etcdctl --user ann:b get kv/a",
  "etcdctl --user ann --password b get kv/ --prefix --keys-only",
  "etcdctl --user ann:b get kv0",
  "etcdctl --user ann:b get '' --prefix",
  "etcdctl --user ann:b put kv/a 1",
  "etcdctl --user ann:b put own/b 1",
  "etcdctl --user ann:b user list",
  "etcdctl --user ann:b compaction 1",
  "etcdctl --user ann:b member list",
  "first 3 etcdctl --user ann:b watch own/b --rev \"$(etcdctl --user ann:b get own/b -w json | sed 's/.*mod_revision.:\\([0-9]*\\).*/\\1/')\"",
  "etcdctl --user ann:b watch other",
  "etcdctl --user ann:b lock own/b echo held",
  "etcdctl --user none:b get kv/a",
  "etcdctl --user root:r user revoke-role ann reader",
  "etcdctl --user ann:b get kv/a",
  "etcdctl --user root:r user delete ann",
  "etcdctl --user root:r role delete reader",
  "etcdctl --user root:r role list",
  "etcdctl --user root:r user list",
  "etcdctl --user root:r auth disable",
  "etcdctl auth status",
  "etcdctl get kv/a",
];

const formats = ["simple", "json", "fields", "protobuf", "table", "nonsense"];
const gets = [
  "kv/a",
  "kv/none",
  "kv/ --prefix",
  "'' --prefix",
  "kv/ --prefix --keys-only",
  "kv/ --prefix --count-only",
  "kv/b --from-key --limit 2",
  "kv/a kv/c",
  "kv/ --prefix --sort-by VALUE --order DESCEND",
  "kv/ --prefix --sort-by MODIFY",
  "kv/ --prefix --sort-by CREATE --order ASCEND",
  "kv/ --prefix --sort-by VERSION --order DESCEND --limit 1",
  "kv/ --prefix --print-value-only",
  "kv/ --prefix --consistency s",
  'kv/ --prefix --rev "$REV"',
  "kv/ --prefix --hex",
  "kv/ --prefix --min-mod-rev 2",
  "kv/ kv/b --prefix",
  "kv/ --order nonsense",
];

/** Commands that only read, so that their output is the same to the byte. */
export const reads: readonly string[] = [
  ...gets.flatMap((get) => formats.map((format) => `etcdctl get ${get} -w ${format}`)),
  ...[
    "member list",
    "endpoint status",
    "endpoint hashkv",
    "endpoint status --cluster",
    "lease list",
    "role list",
    "user list",
    "alarm list",
    "auth status",
  ].flatMap((command) => formats.map((format) => `etcdctl ${command} -w ${format}`)),
  "etcdctl completion bash",
  "etcdctl help",
];
