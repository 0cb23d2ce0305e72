import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { testWithEtcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { type Front, frontOfFile, startFront, untilReady } from "./front.ts";

const run = promisify(execFile);

const etcdOf = etcdOfFile({ args: ["--bcrypt-cost=4"] });
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], {
    resource: ["all="],
    "advertise-client-url": ["http://front:2379"],
  }),
);

let tool: string | undefined;
let front: Front;

beforeAll(async () => {
  tool = (await etcdOf()).etcdctl;
  front = await frontOf();
  await untilReady(front);
});

/** Runs etcdctl on the front. Returns its output, without the last line break. */
async function etcdctl(...args: readonly string[]): Promise<string> {
  const { stdout } = await run(tool ?? "", ["--endpoints", front.address, ...args], {
    env: {},
    timeout: 60_000,
  });
  return stdout.trimEnd();
}

/** Starts etcdctl, and returns what waits until its output matches. It is killed at the end of the test. */
function started(...args: readonly string[]): {
  readonly printed: (what: RegExp) => Promise<string>;
  readonly stdin: NodeJS.WritableStream;
} {
  const child = spawn(tool ?? "", ["--endpoints", front.address, ...args], { env: {} });
  let output = "";
  const waiting: (() => void)[] = [];
  const wake = (): void => {
    for (const each of waiting.splice(0)) each();
  };
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString();
    wake();
  });
  child.on("close", wake);
  onTestFinished(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "close");
  });
  const printed = async (what: RegExp): Promise<string> => {
    for (;;) {
      const found = what.exec(output);
      if (found !== null) return found[0];
      if (child.exitCode !== null) throw new Error(`etcdctl has printed only ${output}`);
      await new Promise<void>((resolve) => waiting.push(resolve));
    }
  };
  return { printed, stdin: child.stdin };
}

// Not each release has the tool: see scripts/etcd.ts.
describe("etcdctl", () => {
  test("puts, gets, deletes, compacts and runs transactions", async ({ skip }) => {
    if (tool === undefined) skip();
    expect(await etcdctl("put", "kv/a", "1")).toBe("OK");
    expect(await etcdctl("get", "kv/", "--prefix")).toBe("kv/a\n1");
    const txn = started("txn");
    txn.stdin.end('value("kv/a") = "1"\n\nput kv/b 2\n\nput kv/c 3\n\n');
    await txn.printed(/SUCCESS\n+OK/);
    expect(await etcdctl("del", "kv/", "--prefix")).toBe("2");
    const { header } = JSON.parse(await etcdctl("get", "x", "-w", "json"));
    expect(await etcdctl("compact", String(header.revision))).toContain("compacted revision");
    await expect(etcdctl("get", "x", "--rev", "1")).rejects.toThrow("has been compacted");
    expect(await etcdctl("defrag")).toContain("Finished defragmenting");
  });

  test("watches, with progress", async ({ skip }) => {
    if (tool === undefined) skip();
    const watch = started("watch", "-i");
    watch.stdin.write("watch watch/ --prefix --prev-kv\n");
    // The interactive watch says nothing when it has begun: a progress response shows it.
    for (let progress = ""; progress === ""; ) {
      watch.stdin.write("progress\n");
      progress = await Promise.race([
        watch.printed(/progress notify: \d+/),
        etcdctl("get", "watch/none"),
      ]);
    }
    await etcdctl("put", "watch/a", "1");
    await watch.printed(/PUT\nwatch\/a\n1\n/);
    await etcdctl("put", "watch/a", "2");
    await watch.printed(/PUT\nwatch\/a\n1\nwatch\/a\n2\n/);
    await etcdctl("del", "watch/a");
    await watch.printed(/DELETE\nwatch\/a\n2\nwatch\/a\n/);
  });

  test("grants, keeps alive, lists and revokes leases", async ({ skip }) => {
    if (tool === undefined) skip();
    const [, lease = ""] = /lease (\w+) granted/.exec(await etcdctl("lease", "grant", "60")) ?? [];
    await etcdctl("put", "lease/a", "1", "--lease", lease);
    expect(await etcdctl("lease", "keep-alive", "--once", lease)).toContain("keepalived");
    expect(await etcdctl("lease", "timetolive", lease, "--keys")).toContain("lease/a");
    expect(await etcdctl("lease", "list")).toContain(lease);
    expect(await etcdctl("lease", "revoke", lease)).toContain("revoked");
    expect(await etcdctl("get", "lease/a")).toBe("");
  });

  test("locks: a second lock waits for the first", async ({ skip }) => {
    if (tool === undefined) skip();
    const first = started("lock", "lock/a");
    await first.printed(/lock\/a\/\w+/);
    const second = started("lock", "lock/a", "/bin/echo", "held");
    // Until both have their keys.
    for (let count = ""; !count.includes('"Count" : 2'); ) {
      count = await etcdctl("get", "lock/a", "--prefix", "--count-only", "-w", "fields");
    }
    const [key = ""] = (await first.printed(/lock\/a\/\w+/)).split("\n");
    await etcdctl("del", key);
    await second.printed(/held/);
  });

  test("elects, and observes a leader", async ({ skip }) => {
    if (tool === undefined) skip();
    const candidate = started("elect", "elect/a", "me");
    await candidate.printed(/elect\/a\/\w+\nme/);
    const observer = started("elect", "--listen", "elect/a");
    await observer.printed(/elect\/a\/\w+\nme/);
  });

  testWithEtcd("a member's name")(
    "shows members with the address of this service, and their status and health",
    async ({ skip }) => {
      if (tool === undefined) skip();
      const { url, version } = await etcdOf();
      const { members } = JSON.parse(await etcdctl("member", "list", "-w", "json"));
      expect(members).toMatchObject([{ name: "test", clientURLs: ["http://front:2379"] }]);
      const direct = await run(tool ?? "", ["--endpoints", url, "member", "list", "-w", "json"]);
      const [own] = JSON.parse(direct.stdout).members;
      expect(members).toEqual([{ ...own, clientURLs: ["http://front:2379"] }]);
      expect(await etcdctl("endpoint", "status")).toContain(version);
      expect(await etcdctl("endpoint", "hashkv")).toContain(front.address);
      expect(await etcdctl("alarm", "list")).toBe("");
      await run(tool ?? "", ["--endpoints", front.address, "endpoint", "health"]);
    },
  );

  testWithEtcd("snapshots")("saves a snapshot", async ({ skip }) => {
    if (tool === undefined) skip();
    await etcdctl("put", "snapshot/a", "x".repeat(100_000));
    const folder = await mkdtemp(join(tmpdir(), "snapshot-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, "snapshot.db");
    await etcdctl("snapshot", "save", file);
    expect((await stat(file)).size).toBeGreaterThan(100_000);
  });

  // The last test: it turns authentication on.
  testWithEtcd("users")(
    "manages users and roles, and each client has only its own rights (etcd issues 22065, 16112)",
    async ({ skip }) => {
      if (tool === undefined) skip();
      await etcdctl("user", "add", "root:r");
      await etcdctl("user", "grant-role", "root", "root");
      await etcdctl("role", "add", "reader");
      await etcdctl("role", "grant-permission", "reader", "read", "auth/", "--prefix=true");
      await etcdctl("user", "add", "ann:a");
      await etcdctl("user", "grant-role", "ann", "reader");
      await etcdctl("auth", "enable");
      const root = ["--user", "root:r"];
      await etcdctl(...root, "put", "auth/a", "1");
      await etcdctl(...root, "put", "secret/a", "1");
      expect(await etcdctl(...root, "get", "secret/a")).toBe("secret/a\n1");
      expect(await etcdctl("--user", "ann:a", "get", "auth/a")).toBe("auth/a\n1");
      await expect(etcdctl("--user", "ann:a", "get", "secret/a")).rejects.toThrow(
        "etcdserver: permission denied",
      );
      await expect(etcdctl("--user", "ann:a", "put", "auth/a", "2")).rejects.toThrow(
        "etcdserver: permission denied",
      );
      await expect(etcdctl("get", "secret/a")).rejects.toThrow("etcdserver: user name is empty");
      await expect(etcdctl("--user", "ann:wrong", "get", "auth/a")).rejects.toThrow(
        "authentication failed",
      );
      expect(await etcdctl(...root, "auth", "disable")).toBe("Authentication Disabled");
    },
  );
});
