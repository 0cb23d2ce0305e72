import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { CommandProcess } from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { eventually } from "../examples/example.ts";
import { Source } from "../storage/etcd/source.ts";
import { buildTimeoutMs, DocumentedExample } from "./documented.ts";

const examples = [
  // On Debian, ensurepip, which venv needs, is in a package of its own.
  new DocumentedExample("Python", ["python3 -c 'import ensurepip, venv'"]),
  new DocumentedExample("Go", ["go version", "npx --version"]),
  new DocumentedExample("Java", ["javac -version", "mvn --version"]),
];

const installed = new Set<DocumentedExample>();
for (const example of examples) {
  const failed = await example.failedProbes();
  if (failed.length === 0) installed.add(example);
  else {
    const why = failed.map((probe) => `"${probe}"`).join(" and ");
    process.stderr.write(`Skipped the example in ${example.language}, since ${why} fails.\n`);
  }
}

const prefix = "/default/ns-1/";

/** An etcd with the resource `default`, and a source of writes. It is stopped after the test. */
class Store {
  readonly url: string;
  readonly source: Source;

  private constructor(etcd: Etcd) {
    this.url = etcd.url;
    this.source = new Source(etcd);
  }

  static async start(): Promise<Store> {
    const etcd = await startEtcd();
    onTestFinished(() => etcd.stop());
    return new Store(etcd);
  }

  put(key: string, value: string): Promise<number> {
    return this.source.write(prefix, [{ type: "put", key, value: Buffer.from(value) }]);
  }

  delete(key: string): Promise<number> {
    return this.source.write(prefix, [{ type: "delete", key }]);
  }

  /** The objects under the prefix, as etcd has them. */
  async objects(): Promise<ReadonlyMap<string, string>> {
    const base64 = (text: string): string => Buffer.from(text).toString("base64");
    const range = { key: base64(prefix), range_end: base64(prefix.replace(/\/$/, "0")) };
    const answer = (await this.source.call("kv/range", range)) as {
      kvs?: readonly { key: string; value: string }[];
    };
    const text = (bytes: string): string => Buffer.from(bytes, "base64").toString();
    return new Map(
      answer.kvs?.map(({ key, value }) => [text(key).slice("/default/".length), text(value)]),
    );
  }
}

/** The service on one address, which it keeps when it is started again. */
class Service {
  address = "127.0.0.1:0";
  #process: CommandProcess | undefined;

  constructor() {
    onTestFinished(() => this.kill());
  }

  async start(store: Store, name: string = "default"): Promise<void> {
    const resource = ["--etcd", store.url, "--resource", `${name}=/default/`];
    const listen = ["--listen", this.address, "--admin", "127.0.0.1:0"];
    this.#process = new CommandProcess(["serve", ...listen, ...resource]);
    const [, address = ""] = await this.#process.printed(/serves gRPC on (\S+)/);
    this.address = address;
  }

  async kill(): Promise<void> {
    await this.#process?.[Symbol.asyncDispose]();
  }
}

/** The changes that an example has printed. */
function changesIn(lines: readonly string[]): readonly string[] {
  return lines.filter((line) => /^\d+ (?:ADDED|MODIFIED|DELETED) /.test(line));
}

/** The objects after these changes. */
function objectsAfter(changes: readonly string[]): ReadonlyMap<string, string> {
  const objects = new Map<string, string>();
  for (const change of changes) {
    const [, type, key = "", value = ""] = change.split(" ");
    if (type === "DELETED") objects.delete(key);
    else objects.set(key, value);
  }
  return objects;
}

describe.each(examples)("The example in $language", { timeout: 90_000 }, (example) => {
  describe.skipIf(!installed.has(example))("with its toolchain", () => {
    let store: Store;
    let service: Service;
    let expected: string[];

    beforeAll(() => example.build(), buildTimeoutMs);

    beforeEach(async () => {
      store = await Store.start();
      service = new Service();
      await service.start(store);
      const a = await store.put("a", "1");
      const b = await store.put("b", "1");
      expected = [`${a} ADDED ns-1/a 1`, `${b} ADDED ns-1/b 1`];
    });

    it("prints each change once, also of the time while the service is away", async () => {
      const watching = example.start(service.address);
      await eventually(() => changesIn(watching.lines), expected);
      expected.push(`${await store.put("a", "2")} MODIFIED ns-1/a 2`);
      await eventually(() => changesIn(watching.lines), expected);

      await service.kill();
      expected.push(`${await store.put("a", "3")} MODIFIED ns-1/a 3`);
      expected.push(`${await store.delete("b")} DELETED ns-1/b`);
      expected.push(`${await store.put("c", "1")} ADDED ns-1/c 1`);
      expected.push(`${await store.put("a", "4")} MODIFIED ns-1/a 4`);
      await watching.said(/DISCONNECTED: .* resuming after revision \d+ in/);
      await service.start(store);
      await eventually(() => changesIn(watching.lines), expected);

      expected.push(`${await store.put("b", "2")} ADDED ns-1/b 2`);
      await eventually(() => changesIn(watching.lines), expected);
      expect(watching.output).not.toMatch(/REVISION_TOO_OLD|HISTORY_/);
      expect(objectsAfter(expected)).toEqual(await store.objects());
    });

    it("lists again if etcd has compacted what it missed", async () => {
      const watching = example.start(service.address);
      await eventually(() => changesIn(watching.lines), expected);

      await service.kill();
      await store.put("c", "lost");
      await store.delete("b");
      await store.delete("c");
      const a = await store.put("a", "2");
      const d = await store.put("d", "1");
      await store.source.compact(d);
      await service.start(store);
      await watching.said(/REVISION_TOO_OLD: .* relisting in/);
      expected.push(`${d} DELETED ns-1/b`, `${a} MODIFIED ns-1/a 2`, `${d} ADDED ns-1/d 1`);
      await eventually(() => changesIn(watching.lines), expected);

      expected.push(`${await store.put("a", "3")} MODIFIED ns-1/a 3`);
      await eventually(() => changesIn(watching.lines), expected);
      expect(objectsAfter(expected)).toEqual(await store.objects());
    });

    it("lists again if the service has another etcd", async () => {
      const watching = example.start(service.address);
      await eventually(() => changesIn(watching.lines), expected);

      await service.kill();
      const other = await Store.start();
      // Its revisions reach beyond the resume point, which only the history id distinguishes.
      for (let i = 0; i < 20; i++) await other.put("b", "1");
      await other.delete("b");
      const a = await other.put("a", "2");
      const c = await other.put("c", "1");
      await service.start(other);
      await watching.said(/HISTORY_CHANGED: .* relisting in/);
      await watching.said(/ADDED ns-1\/c/);
      const [gone = "", ...rest] = changesIn(watching.lines).slice(expected.length);
      expect(gone).toMatch(/^\d+ DELETED ns-1\/b$/);
      expect(rest).toEqual([`${a} MODIFIED ns-1/a 2`, `${c} ADDED ns-1/c 1`]);

      const last = `${await other.put("a", "3")} MODIFIED ns-1/a 3`;
      await watching.said(new RegExp(`^${last}$`, "m"));
      expect(objectsAfter(changesIn(watching.lines))).toEqual(await other.objects());
    });

    it("ends at once if the resource does not exist", async () => {
      await service.kill();
      await service.start(store, "other");
      const watching = example.start(service.address);
      expect(await watching.ended()).toBe(1);
      expect(watching.output).toContain("UNKNOWN_RESOURCE: ");
    });
  });
});
