import { hostname } from "node:os";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Client, connect } from "../../../src/client/connect.ts";
import { Mutex } from "../../../src/client/coordination/mutex.ts";
import { Session } from "../../../src/client/coordination/session.ts";
import { main } from "../../bundle/command.ts";
import { CommandProcess, type Exit, type Served, startServe } from "../serve/serve-process.ts";
import { type Outcome, run } from "./client-terminal.ts";

let served: Served;
let client: Client;

beforeAll(async () => {
  served = await startServe();
  client = connect({ address: served.grpc });
});
afterAll(async () => {
  client.close();
  await served.process[Symbol.asyncDispose]();
});

/** Starts a command in a process of its own. Words behind `--` stay the last ones. */
function start(...args: readonly string[]): CommandProcess {
  const at = args.indexOf("--");
  const end = at === -1 ? args.length : at;
  return new CommandProcess([...args.slice(0, end), "--address", served.grpc, ...args.slice(end)]);
}

async function command(...args: readonly string[]): Promise<Exit> {
  await using process = start(...args);
  return await process.exit;
}

/** Runs one that ends by itself, in this process. */
function ran(...args: readonly string[]): Promise<Outcome> {
  return run([...args, "--address", served.grpc]);
}

/** The keys below a prefix. */
async function keys(prefix: string): Promise<readonly string[]> {
  return (await client.page("default", { prefix })).items.map(({ key }) => key);
}

/** Resolves when there are so many keys below a prefix. */
async function until(prefix: string, count: number): Promise<void> {
  const found = new Set<string>();
  for await (const batch of client.watch("default", {
    scope: { prefix },
    sendInitialEvents: true,
  })) {
    for (const { type, object } of batch.events) {
      if (type === "DELETED") found.delete(object.key);
      else found.add(object.key);
    }
    if (found.size === count) return;
  }
}

/** Revokes the lease of the only key below a prefix. */
async function revokeThatOf(prefix: string): Promise<void> {
  const { items } = await client.page("default", { prefix });
  expect(items).toHaveLength(1);
  expect(await client.leases.revoke(items[0]?.lease ?? 0n)).toBe(true);
}

/**
 * The loss of a lock is noticed in a third of it. So long that a process on a busy machine does not lose its lock before the
 * test takes it away.
 */
const shortTtl = "15s";

/** A command whose lock has this token, and that runs until it gets SIGTERM, which makes its exit code 9. */
const untilTerminated = [
  "sh",
  "-c",
  'trap "exit 9" TERM; echo begun; while :; do sleep 0.05; done',
];

test("A lease is granted, used by put, shown with its objects, renewed, and revoked.", async () => {
  const granted = await ran("lease", "grant", "600s", "-o", "value");
  expect(granted).toMatchObject({ code: 0, stdout: expect.stringMatching(/^\d+\n$/), stderr: "" });
  const id = granted.stdout.trim();
  expect(await ran("put", "leased", "x", "--lease", id)).toMatchObject({ code: 0 });
  const { stdout } = await ran("lease", "ttl", id, "--objects");
  expect(stdout).toMatch(
    new RegExp(
      `^LEASE +TTL +GRANTED *\n${id} +\\d+\\S+ +10m0s *\n\nRESOURCE +KEY *\ndefault +leased *\n$`,
    ),
  );
  const json = await ran("lease", "ttl", id, "-o", "json");
  expect(JSON.parse(json.stdout)).toMatchObject({ granted_ttl: "600s", objects: [] });
  const renewed = await ran("lease", "keep-alive", id, "--once", "-o", "json");
  expect(renewed).toMatchObject({ code: 0, stdout: `{"lease":"${id}","ttl":"600s"}\n` });
  expect(await ran("lease", "revoke", id)).toMatchObject({
    code: 0,
    stdout: `Revoked ${id}.\n`,
  });
  expect(await keys("leased")).toEqual([]);
  for (const name of ["revoke", "ttl", "keep-alive"]) {
    const missing = { code: 3, stdout: "", stderr: expect.stringContaining("There is no ") };
    expect(await ran("lease", name, id), name).toMatchObject(missing);
  }
});

test("keep-alive renews a lease again and again, until it is interrupted or the lease ends.", async () => {
  const granting = connect({ address: served.grpc });
  const { id } = await granting.leases.grant(9_000);
  await using first = start("lease", "keep-alive", String(id));
  await using second = start("lease", "keep-alive", String(id));
  await Promise.all([first.printed(/ 9s/), second.printed(/ 9s/)]);
  // It does not renew the lease any more.
  granting.close();
  // The last of these renewals is later than the lease would have ended.
  await first.printed(/( +9s\s+\S+){4} +9s/);
  first.kill("SIGINT");
  expect(await first.exit).toMatchObject({ code: 0, stderr: "" });
  await client.leases.revoke(id);
  const ended = { code: 3, stderr: expect.stringContaining("There is no such lease") };
  expect(await second.exit).toMatchObject(ended);
});

test("lock runs a command with the fencing token, passes on its exit code, and frees the lock.", async () => {
  const script = 'echo "$1 $WATCH_FANOUT_LOCK_KEY $WATCH_FANOUT_FENCING_TOKEN"; exit 7';
  const first = await command("lock", "job", "--", "sh", "-c", script, "sh", "--flag");
  expect(first).toMatchObject({ code: 7, stderr: "" });
  const [flag, key = "", token] = first.stdout.trim().split(" ");
  expect([flag, key]).toEqual(["--flag", expect.stringMatching(/^job\/[0-9a-f]{16}-1$/)]);
  expect(await keys("job/")).toEqual([]);
  const second = await command("lock", "job", "--", "sh", "-c", script);
  expect(Number(second.stdout.trim().split(" ").at(-1))).toBeGreaterThan(Number(token));
  const missing = await command("lock", "job", "--", "/no/such/command");
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining("/no/such/command") });
  expect(await keys("job/")).toEqual([]);
});

test("A transaction of the command can depend on the lock.", async () => {
  const token = '"$WATCH_FANOUT_FENCING_TOKEN"';
  const txn = `"$@" if "$WATCH_FANOUT_LOCK_KEY" create_revision ${token} put guarded ${token}`;
  const own = [process.execPath, "--disable-warning=ExperimentalWarning", main];
  const words = [...own, "txn", "--address", served.grpc];
  expect(await command("lock", "guard", "--", "sh", "-c", txn, "sh", ...words)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("guarded"),
  });
  const { object } = await client.get("default", "guarded");
  const late = ["txn", "if", "guard/x", "create_revision", String(Buffer.from(object.value))];
  expect(await ran(...late, "put", "guarded", "late")).toMatchObject({ code: 4 });
});

test("A lock is waited for; an interrupt while waiting leaves the queue and runs nothing.", async () => {
  await using session = await Session.open(client);
  const lock = await new Mutex(session, "default", "queue").lock();
  await using interrupted = start("lock", "queue", "--", "echo", "ran");
  await until("queue/", 2);
  await using patient = start("lock", "queue", "--", "echo", "ran");
  await until("queue/", 3);
  interrupted.kill("SIGINT");
  expect(await interrupted.exit).toMatchObject({
    code: 1,
    stdout: "",
    stderr: "watch-fanout: Interrupted before the lock was acquired.\n",
  });
  expect(await keys("queue/")).toHaveLength(2);
  expect(patient.stdout).toBe("");
  await lock.unlock();
  expect(await patient.exit).toMatchObject({ code: 0, stdout: "ran\n", stderr: "" });
});

test("An interrupt is passed on to the command, whose end frees the lock.", async () => {
  await using locked = start("lock", "stop", "--", ...untilTerminated);
  await locked.printed(/begun/);
  expect(await keys("stop/")).toHaveLength(1);
  locked.kill("SIGTERM");
  expect(await locked.exit).toMatchObject({ code: 9, stderr: "" });
  expect(await keys("stop/")).toEqual([]);
});

test("A second interrupt kills a command that ignores the first, before its lock is free.", async () => {
  const stubborn = 'trap "echo again" TERM; echo begun; while :; do sleep 0.05; done';
  await using locked = start("lock", "stubborn", "--", "sh", "-c", stubborn);
  await locked.printed(/begun/);
  locked.kill("SIGINT");
  await locked.printed(/again/);
  expect(await keys("stubborn/")).toHaveLength(1);
  locked.kill("SIGINT");
  expect(await locked.exit).toMatchObject({ code: 128 + 9 });
  expect(await keys("stubborn/")).toEqual([]);
});

test("A lock that is lost ends the command, also one that ignores SIGTERM, and the exit code is 1.", async () => {
  const stubborn = 'trap "" TERM; echo begun; while :; do sleep 0.05; done';
  await using killed = start("lock", "kill", "--ttl", shortTtl, "--", "sh", "-c", stubborn);
  await killed.printed(/begun/);
  await revokeThatOf("kill/");
  await using locked = start("lock", "lost", "--ttl", shortTtl, "--", ...untilTerminated);
  await locked.printed(/begun/);
  await revokeThatOf("lost/");
  expect(await locked.exit).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("The lock is lost."),
  });
  expect(await killed.exit).toMatchObject({ code: 1 });
});

test("Without a command, lock prints the token, and holds the lock until it is interrupted or lost.", async () => {
  await using held = start("lock", "held", "--ttl", shortTtl);
  const [token] = await held.printed(/^\d+\n/);
  const { items } = await client.page("default", { prefix: "held/" });
  expect(items.map(({ createRevision }) => `${createRevision}\n`)).toEqual([token]);
  held.kill("SIGINT");
  expect(await held.exit).toMatchObject({ code: 0, stdout: token, stderr: "" });
  expect(await keys("held/")).toEqual([]);

  await using lost = start("lock", "held", "--ttl", shortTtl, "-o", "json");
  const [line] = await lost.printed(/^.*\n/);
  const { key } = JSON.parse(line);
  expect(await keys("held/")).toEqual([key]);
  await revokeThatOf("held/");
  expect(await lost.exit).toMatchObject({ code: 1 });
});

test("elect leads until it is interrupted, then the next candidate does; --observe prints each.", async () => {
  await using observer = start("elect", "--observe", "leader", "-o", "json");
  await observer.printed(/^\{"fencing_token":"0","value":""\}\n/);
  await using first = start("elect", "leader", "one\n");
  await first.printed(/^TOKEN +LEADER *\n\d+ +one\\n *\n$/);
  await using second = start("elect", "leader", "-o", "value");
  await until("leader/", 2);
  expect(second.stdout).toBe("");
  first.kill("SIGINT");
  expect(await first.exit).toMatchObject({ code: 0, stderr: "" });
  await second.printed(/./);
  expect(second.stdout).toBe(`${hostname()}\n`);
  await observer.printed(new RegExp(`"value":"${hostname()}"`));
  observer.kill("SIGINT");
  const { code, stdout, stderr } = await observer.exit;
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const values = stdout
    .trim()
    .split("\n")
    .map((text) => JSON.parse(text).value);
  expect(values).toEqual(["", "one\n", hostname()]);
  second.kill("SIGINT");
  await second.exit;
});
