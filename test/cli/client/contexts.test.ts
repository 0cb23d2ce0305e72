import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { parse } from "yaml";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { type Script, startScriptedServer } from "../../client/scripted-server.ts";
import { wireObject } from "../../client/wire-messages.ts";
import { CommandProcess, startServe } from "../serve/serve-process.ts";
import { type Outcome, run, type TerminalOptions } from "./client-terminal.ts";

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  path = join(folder, "watch-fanout", "config.yaml");
  vi.stubEnv("XDG_CONFIG_HOME", folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

async function done(args: readonly string[], options?: TerminalOptions): Promise<string> {
  const { code, stdout, stderr } = await run(args, options);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

/** Runs a command that is refused, and returns why. */
async function refusal(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await run(args);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  return stderr;
}

/** Writes a file of contexts. */
function configFile(content: string, mode = 0o600): string {
  const file = join(folder, "contexts.yaml");
  writeFileSync(file, content);
  chmodSync(file, mode);
  return file;
}

test("A context with a token is set once, and used by every command.", async () => {
  const tokens = join(folder, "tokens");
  writeFileSync(tokens, `sha256:${tokenDigest("s3cret")} alice\n`);
  const policy = join(folder, "policy.yaml");
  writeFileSync(
    policy,
    "roles: [{name: all, rules: [{resources: ['*'], prefixes: ['*'], verbs: ['*']}]}]\n" +
      "bindings: [{role: all, subjects: [alice]}]\n",
  );
  const rights = ["--token-file", tokens, "--policy", policy];
  const served = await startServe([...rights, "--resource", "things=/things/"]);
  await using _ = served.process;
  const address = ["--address", served.grpc, "--resource", "things"];
  const stdin = "s3cret\n";
  await done(["context", "set", "one", ...address, "--bearer-token-stdin"], { stdin });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(join(folder, "watch-fanout")).mode & 0o777).toBe(0o700);

  const env = { XDG_CONFIG_HOME: folder };
  await using put = new CommandProcess(["put", "k", "hello"], env);
  expect(await put.exit).toMatchObject({ code: 0, stderr: "" });
  await using read = new CommandProcess(["get", "k", "-o", "value"], env);
  expect(await read.exit).toMatchObject({ code: 0, stdout: "hello" });

  expect(await done(["context", "show"])).not.toContain("s3cret");
  await done(["context", "set", "one", "--unset", "bearer-token"]);
  await using denied = new CommandProcess(["get", "k"], env);
  expect(await denied.exit).toMatchObject({ code: 6 });
});

describe("A value is taken from", () => {
  /** What a get sends: the server that it calls, the resource, and the token. */
  async function sent(...args: readonly string[]): Promise<readonly unknown[]> {
    const seen: unknown[] = [];
    const script = (name: string): Script => ({
      get: ({ request, metadata }, callback) => {
        seen.push(name, request.resource, metadata.get("authorization")[0]);
        callback(null, { revision: "9", object: wireObject("k", 5, "x"), history_id: "h" });
      },
    });
    const servers = await Promise.all(
      ["a", "b", "c"].map((name) => startScriptedServer(script(name))),
    );
    const [a, b, c] = servers.map(({ address }) => address);
    const file = configFile(
      `current-context: a\ncontexts:\n  a: {address: "${a}", resource: ra, bearer-token: ta}\n` +
        `  b: {address: ["${b}"], resource: rb, bearer-token-file: tb}\n`,
    );
    writeFileSync(join(folder, "tb"), "tb\n");
    const given = args.map((arg) => (arg === "C" ? (c ?? "") : arg));
    await done(["get", "k", "--config", file, ...given]);
    for (const { stop } of servers) stop();
    return seen;
  }

  test("the current context, or the one that is named.", async () => {
    expect(await sent()).toEqual(["a", "ra", "Bearer ta"]);
    expect(await sent("--context", "b")).toEqual(["b", "rb", "Bearer tb"]);
    vi.stubEnv("WATCH_FANOUT_CONTEXT", "b");
    expect(await sent()).toEqual(["b", "rb", "Bearer tb"]);
    expect(await sent("--context", "a")).toEqual(["a", "ra", "Bearer ta"]);
  });

  test("a variable before the context, and from a flag before both.", async () => {
    expect(await sent("-r", "flag", "--address", "C")).toEqual(["c", "flag", "Bearer ta"]);
    vi.stubEnv("WATCH_FANOUT_BEARER_TOKEN", "te");
    expect(await sent("--context", "b")).toEqual(["b", "rb", "Bearer te"]);
    vi.stubEnv("WATCH_FANOUT_BEARER_TOKEN", "");
    vi.stubEnv("WATCH_FANOUT_TIMEOUT", "1ms");
    writeFileSync(join(folder, "tf"), "tf");
    const flags = ["--timeout", "10s", "--bearer-token-file", join(folder, "tf")];
    expect(await sent(...flags)).toEqual(["a", "ra", "Bearer tf"]);
  });
});

test("The resource of a context is a default: scopes and health may name others.", async () => {
  const file = configFile(
    "current-context: a\ncontexts: {a: {resource: r, address: '127.0.0.1:1'}}\n",
  );
  const short = ["--config", file, "--timeout", "50ms"];
  expect(await run(["watch", "--scope", "pods=", ...short])).toMatchObject({ code: 5 });
  expect((await run(["health", ...short])).stderr).not.toContain("resource/r");
});

test("Contexts are listed, shown, made current and deleted.", async () => {
  expect(await done(["context", "list"])).toBe("CURRENT  NAME  ADDRESS  RESOURCE\n");
  expect(existsSync(path)).toBe(false);
  await done(["context", "set", "one", "--address", "a:1,b:2", "-o", "yaml", "--tls-ca", "ca.pem"]);
  await done(["context", "set", "two", "--address", "c:3", "-r", "pods", "--tls"]);
  expect(await done(["context", "list"])).toBe(
    "CURRENT  NAME  ADDRESS  RESOURCE\n*        one   a:1,b:2  -\n         two   c:3      pods\n",
  );
  await done(["context", "use", "two"]);
  expect(parse(await done(["context", "show"]))).toEqual({
    ...{ name: "two", address: "c:3", resource: "pods", tls: "true" },
  });
  // A path does not depend on where a later command runs.
  const shown = parse(await done(["context", "show", "one"]));
  expect(shown).toMatchObject({ output: "yaml", "tls-ca": join(process.cwd(), "ca.pem") });
  await done(["context", "delete", "two"]);
  expect(await refusal("context", "show")).toContain("has no current context");
  expect(await refusal("context", "use", "two")).toContain('no context "two". It has one.');
  expect(readdirSync(join(folder, "watch-fanout"))).toEqual(["config.yaml"]);
});

test("A change keeps comments, and a link to the file.", async () => {
  const file = configFile("# mine\ncontexts:\n  one:\n    address: a:1 # first\n");
  const link = join(folder, "link.yaml");
  symlinkSync(file, link);
  await done(["context", "set", "one", "--resource", "pods", "--config", link]);
  expect(readFileSync(file, "utf8")).toBe(
    "# mine\ncontexts:\n  one:\n    address: a:1 # first\n    resource: pods\n",
  );
});

describe("A file is refused", () => {
  test.each([
    [
      "contexts:\n  a:\n    adress: x:1\n",
      ":3: contexts.a.adress: is not a field. Fields: address,",
    ],
    ["context: a\n", ":1: context: is not a field"],
    ["contexts:\n  a:\n    tls: perhaps\n", ":3: contexts.a.tls: must be true or false"],
    ["contexts:\n  a:\n    address: 1\n", ":3: contexts.a.address: must be a text"],
    ["contexts:\n  - a\n", ":2: contexts: must map names to contexts"],
    ["contexts:\n  a: b\n", ":2: contexts.a: must be a name with the fields"],
    ["current-context: [a]\n", ":1: current-context: must be the name"],
    ["contexts:\n  a: {bearer-token: x, bearer-token-file: y}\n", "bearer-token-file is set, too"],
    ["contexts: [\n", "not valid YAML"],
    ["current-context: b\ncontexts: {a: {}}\n", 'has no context "b". It has a.'],
    ["current-context: a\ncontexts:\n  a:\n    timeout: soon\n", ":4: contexts.a.timeout: It "],
    [
      "current-context: a\ncontexts:\n  a:\n    output: xml\n",
      ":4: contexts.a.output: The formats",
    ],
  ])("with its line: %j.", async (content, problem) => {
    expect(await refusal("get", "k", "--config", configFile(content))).toContain(problem);
  });

  test("if it has a token that others may read.", async () => {
    const file = configFile("contexts:\n  a:\n    bearer-token: x\n", 0o640);
    expect(await refusal("get", "k", "--config", file)).toContain(`chmod 600 ${file}`);
  });

  test("if it is named, and absent.", async () => {
    const none = join(folder, "none.yaml");
    expect(await refusal("get", "k", "--config", none)).toContain("can't be read");
    await done(["context", "set", "a", "--config", none]);
    expect(existsSync(none)).toBe(true);
  });
});

test.each([
  [["a b"], "is not a name"],
  [["a", "--timeout", "soon"], "--timeout: It "],
  [["a", "--unset", "none"], "--unset none: the fields are"],
  [["a", "--address", ""], "--address: "],
])("context set %j is refused, and writes nothing.", async (args, problem) => {
  expect(await refusal("context", "set", ...args)).toContain(problem);
  expect(existsSync(path)).toBe(false);
});

test("Input that is not a token is refused.", async () => {
  const outcome: Outcome = await run(["context", "set", "a", "--bearer-token-stdin"], {
    stdin: "a b",
  });
  expect(outcome).toMatchObject({ code: 2 });
  expect(existsSync(path)).toBe(false);
});
