import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Logger, pino } from "pino";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { connect } from "../../src/client/connect.ts";
import type { SharedInformer } from "../../src/client/informer/shared-informer.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { Tier, until } from "../relay/tiers.ts";

/** Both may read everything now. What is kept of one must not be served as the other nevertheless. */
const policy = `
roles: [{ name: all, rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }] }]
bindings: [{ role: all, subjects: [ann, bob] }]
`;

let folder: string;
let root: Tier;
const closing: (() => unknown)[] = [];

/** A file in the folder of the test. Returns its path. */
function file(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

function startRoot(listen = "127.0.0.1:0"): Promise<Tier> {
  const tokens = ["ann", "bob"].map((name) => `sha256:${tokenDigest(`${name}-token`)} ${name}\n`);
  return Tier.start({
    ...{ resource: "things=/things/", data: join(folder, "data.db"), listen },
    ...{ policy: file("policy.yaml", policy), "token-file": file("tokens", tokens.join("")) },
  });
}

/** A logger that keeps its lines as they are written. */
function recorded(): { readonly logger: Logger; readonly lines: string[] } {
  const lines: string[] = [];
  return { lines, logger: pino({ level: "info" }, { write: (line) => void lines.push(line) }) };
}

function relayOf(user: string, logger?: Logger): Promise<Tier> {
  const token = file(`${user}-token`, `${user}-token\n`);
  const options = { "cache-dir": join(folder, "caches"), "upstream-token-file": token };
  return Tier.relay(root.address, options, logger);
}

async function warmStartsOf(user: string, logger?: Logger): Promise<number> {
  const relay = await relayOf(user, logger);
  try {
    const page = await relay.client({ token: `${user}-token` }).page("things");
    expect(page.items.map(({ key }) => key)).toEqual(["a"]);
    return await relay.metric("watch_fanout_cache_warm_starts_total");
  } finally {
    await relay.stop();
  }
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "warm-start-users-"));
  root = await startRoot();
  await root.client({ token: "ann-token" }).put("things", "a", Buffer.from("1"));
});

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await root.stop();
  rmSync(folder, { recursive: true });
});

describe("A relay that follows as another user", () => {
  test("starts cold, with one line for each file that is not used", async () => {
    expect(await warmStartsOf("ann")).toBe(0);
    expect(await warmStartsOf("ann")).toBe(1);
    const { logger, lines } = recorded();
    expect(await warmStartsOf("bob", logger)).toBe(0);
    expect(lines.filter((line) => line.includes("another user"))).toEqual([
      expect.stringContaining("the kept resources of the upstream can't be used"),
      expect.stringContaining("a file of a kept state is not used; nothing is loaded"),
    ]);
    expect(lines.join("")).not.toContain("bob-token\\n");
    expect(await warmStartsOf("bob")).toBe(1);
  });

  test("serves nothing while its upstream is away", async () => {
    expect(await warmStartsOf("ann")).toBe(0);
    const { address } = root;
    await root.stop();
    const asAnn = await relayOf("ann");
    await asAnn.stop();
    const { logger, lines } = recorded();
    const asBob = relayOf("bob", logger);
    await until(async () => lines.some((line) => line.includes("does not respond")));
    expect(lines.join("")).not.toContain("is ready");
    root = await startRoot(address);
    const relay = await asBob;
    closing.push(() => relay.stop());
    expect(await relay.metric("watch_fanout_cache_warm_starts_total")).toBe(0);
  });
});

describe("An informer of another user", () => {
  /** A call may wait for a server that has just failed. */
  const slow = { timeout: 60_000 };

  /** An informer of a program that is started, and the problems that it has logged. */
  function started(user: string): {
    readonly informer: SharedInformer<unknown>;
    readonly problems: unknown[];
    readonly stop: () => Promise<void>;
  } {
    const client = connect({ address: root.address, token: `${user}-token` });
    const problems: unknown[] = [];
    const warn = (fields: object): void => {
      if ("problem" in fields) problems.push(fields.problem);
    };
    const informer = client.resource("things", jsonValues<unknown>()).informer({
      keep: { folder: join(folder, "informer") },
      logger: { info: warn, warn, error: warn },
    });
    informer.start();
    const stop = async (): Promise<void> => {
      await informer.stop();
      client.close();
    };
    closing.push(stop);
    return { informer, problems, stop };
  }

  test("has nothing of what was kept, and lists it", async () => {
    const first = started("ann");
    await first.informer.waitForSync();
    await first.stop();
    const { address } = root;
    await root.stop();
    const again = started("ann");
    await vi.waitFor(() => expect(again.informer.indexer.get("a")?.value).toBe(1), slow);
    await again.stop();
    const { informer, problems } = started("bob");
    await vi.waitFor(() => expect(problems).toContain("it was kept with another user"), slow);
    await vi.waitFor(() => expect(informer.failure?.reason).toBe("UPSTREAM_UNAVAILABLE"), slow);
    expect(informer.indexer.list()).toEqual([]);
    root = await startRoot(address);
    await informer.waitForSync();
    expect(informer.indexer.list().map(({ key }) => key)).toEqual(["a"]);
  });
});
