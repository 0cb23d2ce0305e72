/**
 * Shows a resource as a table that is updated live, or prints each change as a line if the output is not a terminal.
 * In three terminals:
 *
 *     npm start
 *
 *     npm run example examples/live-table/main.ts default
 *
 *     bin/watch-fanout put ns-1/pod-7 hello
 */
import {
  connect,
  lastKnown,
  type SharedInformer,
  type TypedObject,
  type ValueCodec,
} from "watch-fanout/client";

/** Shows each byte that is not printable text as a dot. */
const texts: ValueCodec<string> = {
  decode: (value) => new TextDecoder().decode(value).replace(/\p{C}|\p{Zl}|\p{Zp}/gu, "·"),
  encode: (text) => new TextEncoder().encode(text),
};

const [resource = "default", prefix = ""] = process.argv.slice(2);
const { stdout } = process;
const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const informer = client.resource(resource, texts).informer({
  scope: { prefix },
  // A table does not show intermediate states.
  delivery: "LATEST_STATE",
  // The table shows the current failure by itself.
  onWatchError: ({ error }) => {
    if (!stdout.isTTY) console.error(error.message);
  },
  onRecovered: () => {
    if (!stdout.isTTY) console.error("The watch is current again.");
  },
});

const stopping = Promise.withResolvers<void>();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.resolve());
// The reader of the output has exited, as `head` does.
stdout.on("error", () => stopping.resolve());

const hide = stdout.isTTY ? showTable(informer) : printLines(informer);
informer.start();
await stopping.promise;
hide();
await informer.stop();
client.close();

function printLines(informer: SharedInformer<string>): () => void {
  const print = (type: string, { key, modRevision, value }: TypedObject<string>): void => {
    console.log(`${modRevision} ${type} ${key} ${value}`);
  };
  informer.addEventHandler({
    onAdd: (object) => print("ADDED", object),
    onUpdate: (_before, object) => print("MODIFIED", object),
    onDelete: (gone) => print("DELETED", lastKnown(gone)),
  });
  return () => {};
}

/** Draws on the terminal's alternate screen, and restores the main screen when it is hidden. */
function showTable(informer: SharedInformer<string>): () => void {
  // The terminal cuts long lines, since it knows the width of characters.
  stdout.write("\x1b[?1049h\x1b[?25l\x1b[?7l");
  let soon: NodeJS.Timeout | undefined;
  const draw = (): void => {
    clearTimeout(soon);
    soon = undefined;
    // From the top: clears the rest of each line, then the lines below.
    const lines = tableOf(informer, stdout.rows).map((line) => `${line}\x1b[K`);
    stdout.write(`\x1b[H${lines.join("\n")}\x1b[J`);
  };
  // Draws at most a few times per second, at any rate of changes.
  const changed = (): void => {
    soon ??= setTimeout(draw, 50);
  };
  informer.addEventHandler({ onChange: changed });
  stdout.on("resize", draw);
  const every = setInterval(draw, 1_000);
  draw();
  return () => {
    clearTimeout(soon);
    clearInterval(every);
    stdout.off("resize", draw);
    stdout.write("\x1b[?7h\x1b[?25h\x1b[?1049l");
  };
}

/** As many lines as fit: the state of the watch, the headings, and objects in key order. */
function tableOf({ indexer, failure, revision, hasSynced }: SharedInformer<string>, rows: number) {
  const objects: TypedObject<string>[] = [];
  for (const key of indexer.keys()) {
    const object = indexer.get(key);
    if (objects.length >= rows - 2) break;
    if (object !== undefined) objects.push(object);
  }
  const width = Math.max(3, ...objects.map(({ key }) => key.length));
  const state = hasSynced ? `${indexer.size} objects at revision ${revision}` : "syncing";
  const more = indexer.size - objects.length;
  return [
    `${resource}: ${state}${more > 0 ? `, ${more} below` : ""}${failure ? `; ${failure.message}` : ""}`,
    `\x1b[1m${"KEY".padEnd(width)}  REVISION  VERSION  VALUE\x1b[0m`,
    ...objects.map(({ key, modRevision, version, value }) =>
      [key.padEnd(width), `${modRevision}`.padEnd(8), `${version}`.padEnd(7), value].join("  "),
    ),
  ];
}
