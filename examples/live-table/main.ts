/**
 * Shows a resource as a table that is always up to date, or prints each change as a line where the output is no
 * terminal. In three terminals:
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

/** What is not text, or would do something to the terminal, shows as a dot. */
const texts: ValueCodec<string> = {
  decode: (value) => new TextDecoder().decode(value).replace(/\p{C}|\p{Zl}|\p{Zp}/gu, "·"),
  encode: (text) => new TextEncoder().encode(text),
};

const [resource = "default", prefix = ""] = process.argv.slice(2);
const { stdout } = process;
const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const informer = client.resource(resource, texts).informer({
  scope: { prefix },
  // A table has no use for what was in between.
  delivery: "LATEST_STATE",
  // The table shows by itself why it does not get on, for as long as it does not.
  onWatchError: ({ error }) => {
    if (!stdout.isTTY) console.error(error.message);
  },
  onRecovered: () => {
    if (!stdout.isTTY) console.error("It goes on.");
  },
});

const stopping = Promise.withResolvers<void>();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.resolve());
// Who reads has left, as `head` does.
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

/** Draws on the terminal's other screen, and gives it back when it is hidden. */
function showTable(informer: SharedInformer<string>): () => void {
  // Lines that are too long are cut by the terminal, which knows how wide characters are.
  stdout.write("\x1b[?1049h\x1b[?25l\x1b[?7l");
  let soon: NodeJS.Timeout | undefined;
  const draw = (): void => {
    clearTimeout(soon);
    soon = undefined;
    // From the top, clearing what is left of each line and then what is below.
    const lines = tableOf(informer, stdout.rows).map((line) => `${line}\x1b[K`);
    stdout.write(`\x1b[H${lines.join("\n")}\x1b[J`);
  };
  // However many changes come, it is drawn a few times a second.
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

/** As many lines as there is room for: what is known, the headings, and objects in key order. */
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
