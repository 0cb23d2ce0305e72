/**
 * Prints which files of `src` an event, a call and a decision pass in the service's process, in the order of their first
 * call: `npm run --silent walks`. It counts the calls of functions in a warm `serve` over a real etcd.
 */
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Client, connect } from "../src/client/connect.ts";
import { startServe } from "../test/cli/serve/serve-process.ts";
import { startEtcd } from "../test/etcd/etcd.ts";
import { RawGrpc } from "../test/etcd-api/raw-grpc.ts";
import { WatchClient } from "../test/etcd-api/watch-client.ts";
import { encode } from "../test/foreign/protobuf.ts";
import { CallRecorder } from "./walks/call-recorder.ts";

const source = new URL("../src/", import.meta.url).href;
const token = "walks";
/** How often an action is done before it is counted. */
const warmUps = 20;
const policy = `roles: [{ name: reader, rules: [{ resources: [default], prefixes: ["*"], verbs: ["*"] }] }]
bindings: [{ role: reader, subjects: [walker] }]
`;

interface WalkOptions {
  /** Undoes what the action did. */
  readonly reset?: () => Promise<void>;
  /** Which files count, by their path in `src`. Default: all. */
  readonly counts?: (path: string) => boolean;
}

/** The files that a decision passes: of identity, of policies, and the stages that ask them. */
const decision =
  /^(?:identity|policy|server\/calls\/(?:authentication|authorization|credentials))\b/;

await using closings = new AsyncDisposableStack();
const folder = mkdtempSync(join(tmpdir(), "watch-fanout-walks-"));
closings.defer(() => rmSync(folder, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const tokenFile = file(
  "tokens",
  `sha256:${createHash("sha256").update(token).digest("hex")} walker\n`,
);

const etcd = await startEtcd();
closings.defer(() => etcd.stop());
const etcdGrpc = closings.adopt(new RawGrpc(etcd.url), (each) => each.close());
const put = async (): Promise<void> => {
  await etcdGrpc.unary("/etcdserverpb.KV/Put", encode({ 1: "/walks/1", 2: "value" }));
};

/** Starts a service with these arguments, and its recorder. */
async function service(args: readonly string[]): Promise<readonly [grpc: string, CallRecorder]> {
  const served = await startServe(
    [...["--etcd", etcd.url, "--resource", "default=/walks/", "--log-level", "warn"], ...args],
    { NODE_OPTIONS: "--inspect=127.0.0.1:0" },
  );
  closings.use(served.process);
  const [, url = ""] = await served.process.printed(/Debugger listening on (\S+)/);
  const isOurs = (script: string): boolean =>
    script.startsWith(source) && !script.includes("/generated/");
  return [served.grpc, closings.use(await CallRecorder.attach(url, isOurs))];
}

/** Prints the files that `act` passes. */
async function walk(
  name: string,
  recorder: CallRecorder,
  act: () => Promise<void>,
  { reset = async () => {}, counts = () => true }: WalkOptions = {},
): Promise<void> {
  for (let i = 0; i < warmUps; i++) {
    await act();
    await reset();
  }
  const called = await recorder.calledBy(act, reset);
  const passed = await recorder.inOrder(called.values(), act, reset);
  const files = passed.map((url) => url.slice(source.length)).filter(counts);
  const lines = files.map((path) => `  ${path}\n`);
  process.stdout.write(`${name}: ${files.length} files\n${lines.join("")}\n`);
}

const [grpc, recorder] = await service([]);
const client = closings.use(connect({ address: [grpc] }));
await put();
const list = async (of: Client): Promise<void> => {
  for await (const _ of of.list("default"));
};

let stop = new AbortController();
let received = Promise.withResolvers<void>();
let read = Promise.resolve();
const watch = async (): Promise<void> => {
  stop = new AbortController();
  const opened = Promise.withResolvers<void>();
  read = (async () => {
    const options = { signal: stop.signal, onOpened: () => opened.resolve() };
    for await (const _ of client.watch("default", options)) received.resolve();
  })().catch(opened.reject);
  await opened.promise;
};
const endWatch = async (): Promise<void> => {
  stop.abort();
  await read.catch(() => {});
};

await watch();
await walk("an event, from etcd to the socket of a Watch", recorder, async () => {
  received = Promise.withResolvers<void>();
  await put();
  await received.promise;
});
await endWatch();
await walk("a List, linearizable", recorder, () => list(client));
await walk("the opening of a Watch", recorder, watch, { reset: endWatch });

const api = ["--etcd-api", "on", "--watch-fanout-api", "off"];
const [address, apiRecorder] = await service(api);
const etcdClient = closings.adopt(new RawGrpc(`http://${address}`), (each) => each.close());
let etcdWatch = new WatchClient(etcdClient);
const openEtcdWatch = async (): Promise<void> => {
  etcdWatch = new WatchClient(etcdClient);
  etcdWatch.create({ 1: "/walks/", 2: "/walks0" });
  await etcdWatch.until((responses) => responses.length > 0);
};
const closeEtcdWatch = async (): Promise<void> => etcdWatch.close();
await openEtcdWatch();
await walk("an event, from etcd to the socket of a Watch of etcd's API", apiRecorder, async () => {
  const { length } = etcdWatch.responses;
  await put();
  await etcdWatch.until((responses) => responses.length > length);
});
await closeEtcdWatch();
await walk("the opening of a Watch of etcd's API", apiRecorder, openEtcdWatch, {
  reset: closeEtcdWatch,
});

const flags = ["--token-file", tokenFile, "--policy", file("policy.yaml", policy)];
const [limitedGrpc, limitedRecorder] = await service(flags);
const limited = closings.use(connect({ address: [limitedGrpc], token }));
const listAsReader = (): Promise<void> => list(limited);
await walk(
  "the identity and the right of a List, by a token and a policy",
  limitedRecorder,
  listAsReader,
  {
    counts: (path) => decision.test(path),
  },
);
