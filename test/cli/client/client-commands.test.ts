import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import {
  notReady,
  objectNotFound,
  type Reason,
  revisionConflict,
  WatchFanoutError,
} from "../../../src/base/errors.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import type { ResourcesResponse } from "../../../src/wire/generated/watchfanout/v1/ResourcesResponse.ts";
import { endWith, type Script, startScriptedServer } from "../../client/scripted-server.ts";
import { wireEvent, wireObject, wireResponse } from "../../client/wire-messages.ts";
import { type Outcome, run, Terminal, type TerminalOptions } from "./client-terminal.ts";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
  vi.unstubAllEnvs();
});

async function server(script: Script): Promise<string> {
  const { address, stop } = await startScriptedServer(script);
  cleanups.push(stop);
  return address;
}

/** Runs one command against a server that follows the script. */
async function against(
  script: Script,
  args: readonly string[],
  options?: TerminalOptions,
): Promise<Outcome> {
  return run([...args, "--address", await server(script)], options);
}

function scratchFile(name: string, content: string | Uint8Array): string {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  cleanups.push(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, name), content);
  return join(folder, name);
}

const found = { revision: "9", object: wireObject("k", 5, "hello\n"), history_id: "h" };
const foundObject = {
  key: "k",
  value: "aGVsbG8K",
  create_revision: "1",
  mod_revision: "5",
  version: "1",
  lease: "0",
};
const foundTable = "KEY  REVISION  VERSION  VALUE\nk    5         1        hello\\n\n";
const responding: Script = {
  get: (_, callback) => callback(null, found),
  put: (_, callback) => callback(null, found),
  delete: (_, callback) => callback(null, found),
};

describe("get, put and delete print the object", () => {
  const commands = [
    ["get", "k"],
    ["put", "k", "v"],
    ["delete", "k"],
  ];

  test.each(commands)("%s: as a table by default.", async (...args) => {
    const outcome = await against(responding, args);
    expect(outcome).toEqual({ code: 0, stdout: foundTable, stderr: "" });
  });

  test.each(commands)("%s -o json: as its message, on one line.", async (...args) => {
    const { stdout } = await against(responding, [...args, "-o", "json"]);
    expect(stdout).toMatch(/^[^\n]*\n$/);
    expect(JSON.parse(stdout)).toEqual({ revision: "9", object: foundObject, history_id: "h" });
  });

  test.each(commands)("%s -o value: as exactly its bytes.", async (...args) => {
    expect((await against(responding, [...args, "-o", "value"])).stdout).toBe("hello\n");
  });
});

test("A value on a terminal is followed by a line end.", async () => {
  const object = { ...found.object, value: Buffer.from("no line end") };
  const script: Script = { get: (_, callback) => callback(null, { ...found, object }) };
  const { stdout } = await against(script, ["get", "k", "-o", "value"], { columns: 80 });
  expect(stdout).toBe("no line end\n");
});

describe("get sends", () => {
  test.each([
    [[], "LINEARIZABLE", "0"],
    [["--revision-match", "linearizable"], "LINEARIZABLE", "0"],
    [["--revision-match", "any"], "ANY", "0"],
    [["--at", "7"], "EXACT", "7"],
    [["--revision", "7"], "EXACT", "7"],
    [["--revision", "7", "--revision-match", "exact"], "EXACT", "7"],
    [["--revision", "7", "--revision-match", "not-older-than"], "NOT_OLDER_THAN", "7"],
  ])("%j as %s with revision %s.", async (options, match, revision) => {
    const asked: unknown[] = [];
    const script: Script = {
      get: ({ request }, callback) => {
        asked.push([request.resource, request.revision_match, request.revision]);
        callback(null, { ...found, revision: match === "EXACT" ? revision : found.revision });
      },
    };
    expect((await against(script, ["get", "k", "-r", "pods", ...options])).code).toBe(0);
    expect(asked).toEqual([["pods", `REVISION_MATCH_${match}`, revision]]);
  });
});

describe("resources", () => {
  const pods = { name: "pods", codec: "CODEC_JSON", cached: true, revision: "9", history_id: "h" };
  const parts = {
    ...{ fields: ["phase"], indexed_fields: ["phase"], oldest_revision: "7" },
    views: ["VIEW_FULL", "VIEW_KEYS"],
  };
  const raw = { name: "raw", codec: "CODEC_OPAQUE", stale_for: { seconds: 61, nanos: 5e8 } };
  const script: Script = {
    resources: ({ request: { after_name } }, callback) =>
      callback(null, {
        resources: after_name === "" ? [{ ...pods, ...parts, readable_in_full: true }] : [raw],
        has_more: after_name === "",
      } as ResourcesResponse),
  };

  test("prints all of them as a table.", async () => {
    expect((await against(script, ["resources"])).stdout).toBe(
      "NAME  CODEC   CACHE  REVISION  READABLE  STALE FOR\n" +
        "pods  json    yes    9         all       -\n" +
        "raw   opaque  no     -         part      61.5s\n",
    );
  });

  test("-o json: as one ResourcesResponse.", async () => {
    const { stdout } = await against(script, ["resources", "-o", "json"]);
    expect(JSON.parse(stdout)).toEqual({
      resources: [
        { ...pods, ...parts, readable_in_full: true },
        {
          ...{ ...raw, cached: false, revision: "0", history_id: "" },
          ...{ fields: [], indexed_fields: [], oldest_revision: "0", views: [] },
          ...{ readable_in_full: false, stale_for: "61.500s" },
        },
      ],
      has_more: false,
    });
  });

  test("of a server that says without end that there are more ends with an error.", async () => {
    const endless: Script = {
      resources: (_, callback) => callback(null, { resources: [], has_more: true }),
    };
    expect((await against(endless, ["resources"])).stderr).toContain("resources without end");
  });
});

test("A response that may be old is printed with a warning.", async () => {
  const stale = { stale_for: { seconds: 12, nanos: 0 } };
  const script: Script = {
    get: (_, callback) => callback(null, { ...found, ...stale }),
    list: (_, callback) =>
      callback(null, { revision: "9", items: [found.object], history_id: "h", ...stale }),
  };
  for (const args of [["get", "k"], ["list"]]) {
    const { stdout, stderr } = await against(script, [...args, "--revision-match", "any"]);
    expect(stdout).toContain("k    5");
    expect(stderr).toContain("The server can't reach its own source: this may be 12.0 s old.");
  }
  const { stdout } = await against(script, ["get", "k", "-o", "json"]);
  expect(JSON.parse(stdout)).toMatchObject({ stale_for: "12.000s" });
});

test("A response that is older than --max-stale is an error, and nothing is printed.", async () => {
  const matches: unknown[] = [];
  const stale = { stale_for: { seconds: 12, nanos: 0 } };
  const script: Script = {
    get: ({ request }, callback) => {
      matches.push(request.revision_match);
      callback(null, { ...found, ...stale });
    },
    list: ({ request }, callback) => {
      matches.push(request.revision_match);
      const listed = request.view === "VIEW_COUNT" ? { remaining_item_count: "3" } : {};
      callback(null, { revision: "9", items: [], history_id: "h", ...listed, ...stale });
    },
  };
  for (const args of [["get", "k"], ["list"], ["list", "--count"], ["watch"]]) {
    const { code, stdout, stderr } = await against(script, [...args, "--max-stale", "11s"]);
    expect([code, stdout]).toEqual([5, ""]);
    expect(stderr).toContain("what it has may be 12.0 s old, above --max-stale");
  }
  expect(matches).toEqual(Array(4).fill("REVISION_MATCH_ANY"));
  const within = await against(script, ["list", "--count", "--max-stale", "12s"]);
  expect(within).toMatchObject({ code: 0, stdout: "3\n" });
});

describe("list", () => {
  const script: Script = {
    list: ({ request }, callback) =>
      callback(null, {
        revision: "12",
        history_id: "h",
        ...(request.page_token === ""
          ? { items: [wireObject(`${request.prefix}a`, 1)], next_page_token: "t" }
          : { items: [wireObject(`${request.prefix}long`, 12)], remaining_item_count: "0" }),
      }),
  };

  test.each([[["--prefix", "p/"]], [["p/"]]])(
    "of %j prints all pages as one table.",
    async (prefix) => {
      const { code, stdout } = await against(script, ["list", ...prefix]);
      expect(code).toBe(0);
      expect(stdout).toBe(
        "KEY  REVISION  VERSION  VALUE\np/a  1         1        v\np/long  12        1        v\n",
      );
    },
  );

  test("prints each page as one line of JSON.", async () => {
    const { stdout } = await against(script, ["list", "-o", "json"]);
    const lines = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines).toMatchObject([
      { revision: "12", items: [{ key: "a" }], next_page_token: "t", history_id: "h" },
      { revision: "12", items: [{ key: "long" }], next_page_token: "", remaining_item_count: "0" },
    ]);
    expect(lines[0]).not.toHaveProperty("remaining_item_count");
  });

  test("prints one value per line.", async () => {
    expect((await against(script, ["list", "-o", "value"])).stdout).toBe("v\nv\n");
  });

  test("of no objects prints the headings, and succeeds.", async () => {
    const empty: Script = { list: (_, callback) => callback(null, { revision: "9" }) };
    expect(await against(empty, ["list"])).toEqual({
      code: 0,
      stdout: "KEY  REVISION  VERSION  VALUE\n",
      stderr: "",
    });
  });
});

describe("put reads the value", () => {
  const bytes = Buffer.from([0, 0xff, 0x0a]);

  async function sent(args: readonly string[], options?: TerminalOptions): Promise<Buffer[]> {
    const values: Buffer[] = [];
    const script: Script = {
      put: ({ request }, callback) => {
        values.push(request.value);
        callback(null, found);
      },
    };
    expect(await against(script, ["put", "k", ...args], options)).toMatchObject({ code: 0 });
    return values;
  }

  test("from the argument.", async () => {
    expect(await sent(["wört"])).toEqual([Buffer.from("wört")]);
  });

  test("from standard input for -, byte for byte.", async () => {
    expect(await sent(["-"], { stdin: bytes })).toEqual([bytes]);
  });

  test("from standard input without an argument.", async () => {
    expect(await sent([], { stdin: bytes })).toEqual([bytes]);
  });

  test("from a file.", async () => {
    expect(await sent(["--file", scratchFile("value", bytes)])).toEqual([bytes]);
  });

  test("up to 64 MiB, from any source.", async () => {
    const tooMuch = Buffer.alloc(64 * 1024 ** 2 + 1);
    const script: Script = {
      put: () => {
        throw new Error("It was sent.");
      },
    };
    const file = scratchFile("value", tooMuch);
    for (const [args, stdin] of [
      [["--file", file], ""],
      [["-"], tooMuch],
    ] as const) {
      const { code, stderr } = await against(script, ["put", "k", ...args], { stdin });
      expect([code, stderr]).toEqual([2, expect.stringContaining("more than 67108864 bytes")]);
    }
  });

  test("as empty if the argument is.", async () => {
    expect(await sent([""])).toEqual([Buffer.of()]);
  });
});

test("A lease may be hexadecimal, as etcdctl prints it.", async () => {
  const leases: string[] = [];
  const script: Script = {
    put: ({ request }, callback) => {
      leases.push(request.lease);
      callback(null, found);
    },
  };
  await against(script, ["put", "k", "v", "--lease", "0x694d81417acd4754"]);
  await against(script, ["put", "k", "v", "--lease", "9223372036854775807"]);
  expect(leases).toEqual([String(0x694d81417acd4754n), "9223372036854775807"]);
});

test("A ttl is sent exactly, and the service rounds it.", async () => {
  const ttls: unknown[] = [];
  const script: Script = {
    put: ({ request }, callback) => {
      ttls.push(request.ttl);
      callback(null, found);
    },
  };
  await against(script, ["put", "k", "v", "--ttl", "1500ms"]);
  await against(script, ["put", "k", "v", "--ttl", "1h"]);
  await against(script, ["put", "k", "v"]);
  expect(ttls).toEqual([{ seconds: "1", nanos: 500_000_000 }, { seconds: "3600", nanos: 0 }, null]);
});

describe("list sends", () => {
  test.each([
    [[], {}],
    [["-l", "app in (a, b),!x"], { label_selector: "app in (a, b),!x" }],
    [["--selector", "app=web"], { label_selector: "app=web" }],
    [["--field-selector", "phase!=Failed"], { field_selector: "phase!=Failed" }],
    [
      ["--revision", "7", "--history-id", "h"],
      { revision: "7", revision_match: "REVISION_MATCH_EXACT", history_id: "h" },
    ],
  ])("%j as %j.", async (options, asked) => {
    const requests: unknown[] = [];
    const script: Script = {
      list: ({ request }, callback) => {
        requests.push(request);
        callback(null, { revision: request.revision === "0" ? "9" : request.revision });
      },
    };
    expect((await against(script, ["list", ...options])).code).toBe(0);
    const nothing = { label_selector: "", field_selector: "", history_id: "" };
    expect(requests).toMatchObject([{ ...nothing, ...asked }]);
  });
});

describe("--history-id is sent by", () => {
  test.each([
    ["get", "k"],
    ["put", "k", "v"],
    ["delete", "k"],
  ])("%s", async (...args) => {
    const asked: string[] = [];
    const respond = (
      { request }: { readonly request: { readonly history_id: string } },
      callback: (error: null, found: object) => void,
    ): void => {
      asked.push(request.history_id);
      callback(null, found);
    };
    const script: Script = { get: respond, put: respond, delete: respond };
    await against(script, [...args, "--history-id", "h"]);
    await against(script, args);
    expect(asked).toEqual(["h", ""]);
  });
});

describe("The exit code", () => {
  test.each<[Reason, number]>([
    ["INVALID_REQUEST", 2],
    ["OBJECT_NOT_FOUND", 3],
    ["UNKNOWN_RESOURCE", 3],
    ["REVISION_CONFLICT", 4],
    ["NOT_READY", 5],
    ["UPSTREAM_UNAVAILABLE", 5],
    ["REVISION_TOO_NEW", 5],
    ["DRAINING", 5],
    ["STORAGE_FULL", 5],
    ["REVISION_TOO_OLD", 1],
    ["OUTCOME_UNKNOWN", 7],
    ["INTERNAL", 1],
  ])("for %s is %i, and stderr has the message.", async (reason, code) => {
    const error = new WatchFanoutError(reason, "This is what was wrong.");
    const script: Script = { delete: (_, callback) => callback(statusOf(error)) };
    expect(await against(script, ["delete", "k"])).toEqual({
      code,
      stdout: "",
      stderr: "watch-fanout: This is what was wrong.\n",
    });
  });

  test("for an unreachable server is 5.", async () => {
    const { address, stop } = await startScriptedServer({});
    stop();
    const { code, stderr } = await run(["get", "k", "--address", address]);
    expect(code).toBe(5);
    expect(stderr).toContain(`No response from watch-fanout at ${address}`);
  });

  test("for a timeout is 5.", async () => {
    const { code } = await against({ get: () => {} }, ["get", "k", "--timeout", "20ms"]);
    expect(code).toBe(5);
  });
});

test("The messages of a server are escaped.", async () => {
  const error = objectNotFound("\u001b[2J", 1).with({});
  const evil = new WatchFanoutError(error.reason, "\u001b[2Jgone");
  const { stderr } = await against({ get: (_, callback) => callback(statusOf(evil)) }, [
    "get",
    "k",
  ]);
  expect(stderr).toBe("watch-fanout: \\u{1b}[2Jgone\n");
});

describe("An invalid command line exits with 2, sends nothing, and names the option:", () => {
  test.each([
    [["get"], "key"],
    [["get", "k", "--revision", "-1"], "--revision"],
    [["get", "k", "--at", "0"], "--at must be at least 1"],
    [["get", "k", "--at", "7", "--revision", "7"], "--at"],
    [["get", "k", "--revision", "1.5"], "--revision"],
    [["get", "k", "--revision", "99999999999999999999"], "--revision"],
    [["get", "k", "--revision", "0"], "--revision must be at least 1"],
    [["get", "k", "--revision-match", "exact"], "--revision-match exact needs --revision"],
    [["get", "k", "--revision-match", "newest"], "--revision-match"],
    [["get", "k", "--max-stale", "1m", "--at", "7"], "--max-stale"],
    [["list", "--max-stale", "1m", "--revision-match", "any"], "--max-stale"],
    [["watch", "--max-stale", "1m", "--after-revision", "7"], "--max-stale"],
    [["list", "--max-stale", "old"], "--max-stale"],
    [
      ["list", "--revision", "7", "--revision-match", "any"],
      "--revision can't be used with --revision-match any",
    ],
    [["list", "--page-size", "many"], "--page-size"],
    [["list", "-o", "xml"], "--output"],
    [["list", "--timeout", "soon"], "--timeout"],
    [["list", "--timeout", "0s"], "--timeout"],
    [["list", "--address", "http://localhost:1"], "--address"],
    [["list", "--address", "localhost"], "--address"],
    [["list", "--tls-ca", "/does/not/exist"], "--tls-ca"],
    [["list", "--tls-client-cert", "/does/not/exist"], "--tls-client-key"],
    [["list", "--colour"], "--colour"],
    [["watch", "--key", "a", "--prefix", "b"], "--key and --prefix"],
    [["watch", "b/", "--key", "a"], "--key and --prefix"],
    [["watch", "b/", "--prefix", "c/"], "--prefix can't be used with another prefix"],
    [["list", "b/", "--prefix", "c/"], "--prefix can't be used with another prefix"],
    [["list", "b/", "c/"], "too many arguments"],
    [["watch", "--previous"], "--previous"],
    [["watch", "--after-revision", "x"], "--after-revision"],
    [["put", "k", "v", "--file", "f"], "--file"],
    [["put", "k", "--file", "/does/not/exist"], "--file"],
    [["put", "k", "v", "--lease", "0"], "--lease"],
    [["put", "k", "v", "--lease", "9223372036854775808"], "--lease"],
    [["put", "k", "v", "--expected-mod-revision", "x"], "--expected-mod-revision"],
    [["put", "k", "v", "--ttl", "0s"], "--ttl"],
    [["put", "k", "v", "--ttl", "10"], "--ttl"],
    [["put", "k", "v", "--ttl", "10s", "--lease", "7"], "--ttl"],
    [["list", "-l"], "--selector"],
  ])("%j", async (args, named) => {
    const { code, stdout, stderr } = await run(args);
    expect(code).toBe(2);
    expect(stdout).toBe("");
    expect(stderr).toContain(named);
  });

  test("put without a value on a terminal", async () => {
    const { code, stderr } = await run(["put", "k"], { columns: 80 });
    expect(code).toBe(2);
    expect(stderr).toContain("--file");
  });
});

describe("The environment", () => {
  test("provides options that the command line does not have.", async () => {
    vi.stubEnv("WATCH_FANOUT_ADDRESS", await server(responding));
    vi.stubEnv("WATCH_FANOUT_OUTPUT", "value");
    expect((await run(["get", "k"])).stdout).toBe("hello\n");
    expect((await run(["get", "k", "-o", "table"])).stdout).toBe(foundTable);
  });

  test("is checked like the command line, and named in the error.", async () => {
    vi.stubEnv("WATCH_FANOUT_TIMEOUT", "soon");
    const { code, stderr } = await run(["get", "k"]);
    expect(code).toBe(2);
    expect(stderr).toContain("WATCH_FANOUT_TIMEOUT");
  });

  test("counts an empty variable as absent.", async () => {
    vi.stubEnv("WATCH_FANOUT_TIMEOUT", "");
    expect((await against(responding, ["get", "k"])).code).toBe(0);
  });
});

describe("watch", () => {
  const tooSlow = new WatchFanoutError("SLOW_CONSUMER", "Too slow.");
  /** A stream that sends these responses and stays open. */
  const saying =
    (...responses: readonly ReturnType<typeof wireResponse>[]): NonNullable<Script["watch"]> =>
    (call) => {
      for (const response of responses) call.write(response);
    };
  const changes = saying(
    wireResponse(1),
    wireResponse(3, [wireEvent("ADDED", "a", 2), wireEvent("DELETED", "long-key", 3)]),
  );

  async function watching(watch: NonNullable<Script["watch"]>, args: string[], until: string) {
    const terminal = new Terminal();
    const address = await server({ watch });
    const outcome = terminal.run("watch", "--address", address, ...args);
    await terminal.until("stdout", until);
    terminal.interrupt();
    return outcome;
  }

  test("prints events as a table, and ends with 0 when interrupted.", async () => {
    expect(await watching(changes, [], "DELETED")).toEqual({
      code: 0,
      stdout:
        "REVISION  EVENT     KEY       VALUE\n2         ADDED     a         v\n3         DELETED   long-key  v\n",
      stderr: "",
    });
  });

  test("prints each batch as a line of JSON, bookmarks as well.", async () => {
    const { stdout } = await watching(changes, ["-o", "json"], "DELETED");
    const lines = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines).toMatchObject([
      { revision: "1", events: [] },
      { revision: "3", events: [{ type: "EVENT_TYPE_ADDED" }, { type: "EVENT_TYPE_DELETED" }] },
    ]);
  });

  test("prints the values of changed objects, and none of deleted ones.", async () => {
    const more = saying(
      wireResponse(3, [wireEvent("DELETED", "a", 3)]),
      wireResponse(4, [{ ...wireEvent("ADDED", "b", 4), object: wireObject("b", 4, "here") }]),
    );
    expect((await watching(more, ["-o", "value"], "here")).stdout).toBe("here\n");
  });

  test("prints an atomic batch once it is complete.", async () => {
    const terminal = new Terminal();
    const begun = Promise.withResolvers<() => void>();
    const address = await server({
      watch: (call) => {
        call.write(wireResponse(1, [wireEvent("ADDED", "before", 1)]));
        call.write(wireResponse(undefined, [wireEvent("ADDED", "first", 2)]));
        begun.resolve(() => call.write(wireResponse(2, [wireEvent("ADDED", "second", 2)])));
      },
    });
    const outcome = terminal.run("watch", "--address", address, "-o", "json");
    await terminal.until("stdout", "before");
    const close = await begun.promise;
    close();
    await terminal.until("stdout", "second");
    terminal.interrupt();
    const batches = (await outcome).stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(batches.map((batch) => batch.events.length)).toEqual([1, 2]);
  });

  test.each([
    [[], {}],
    [["--key", "k"], { key: "k" }],
    [["--prefix", "p", "--after-revision", "0"], { prefix: "p", after_revision: "0" }],
    [["--initial"], { send_initial_events: true }],
    [["--latest"], { delivery: "DELIVERY_LATEST_STATE" }],
    [["--previous", "-o", "json"], { include_previous: true }],
    [
      ["-l", "app=web", "--field-selector", "a=b"],
      { label_selector: "app=web", field_selector: "a=b" },
    ],
    [["ns-1/"], { prefix: "ns-1/" }],
    [["--after-revision", "5", "--history-id", "h"], { after_revision: "5", history_id: "h" }],
  ])("asks %j as %j.", async (args, asked) => {
    const requests: unknown[] = [];
    const script: NonNullable<Script["watch"]> = (call) => {
      const { request } = call;
      requests.push(request);
      const key = request.key === undefined ? `${request.prefix ?? ""}seen` : request.key;
      const revision = Number(request.after_revision ?? 0) + 1;
      const object = wireObject(key, revision, "seen");
      call.write(wireResponse(revision, [{ ...wireEvent("ADDED", key, revision), object }]));
    };
    await watching(script, args, "seen");
    expect(requests).toMatchObject([
      {
        resource: "default",
        send_initial_events: false,
        include_previous: false,
        delivery: "DELIVERY_UNSPECIFIED",
        ...asked,
      },
    ]);
  });

  test("resumes after an interruption, and reports it.", async () => {
    let streams = 0;
    const script: NonNullable<Script["watch"]> = (call) => {
      streams++;
      if (streams === 1) {
        call.write(wireResponse(7));
        endWith(call, tooSlow);
      } else {
        expect(call.request.after_revision).toBe("7");
        call.write(wireResponse(8, [wireEvent("ADDED", "later", 8)]));
      }
    };
    const { code, stderr } = await watching(script, [], "later");
    expect(code).toBe(0);
    expect(stderr).toMatch(
      /^watch-fanout: Too slow\. Retrying to resume after revision 7\.\nwatch-fanout: The watch has resumed\.\n$/,
    );
  });

  test("prints one line for all attempts of an outage, and one for its end.", async () => {
    const failures = [notReady("Not yet."), notReady("Not yet."), tooSlow];
    const script: NonNullable<Script["watch"]> = (call) => {
      const failure = failures.shift();
      if (failure !== undefined) endWith(call, failure);
      else call.write(wireResponse(8, [wireEvent("ADDED", "later", 8)]));
    };
    expect(await watching(script, ["--timeout", "1m"], "later")).toMatchObject({
      code: 0,
      stderr: [
        "watch-fanout: Not yet. Retrying to resume.",
        "watch-fanout: Too slow. Retrying to resume.",
        "watch-fanout: The watch has resumed.\n",
      ].join("\n"),
    });
  });

  test("ends with an error that needs a relist.", async () => {
    const script: Script = {
      watch: (call) => endWith(call, new WatchFanoutError("REVISION_TOO_OLD", "Relist.")),
    };
    expect(await against(script, ["watch"])).toMatchObject({
      code: 1,
      stderr: "watch-fanout: Relist.\n",
    });
  });

  test("ends as unavailable if no first response arrives in time.", async () => {
    const silent: Script = { watch: () => {} };
    const refusing: Script = { watch: (call) => endWith(call, notReady("Not yet.")) };
    for (const script of [silent, refusing]) {
      const { code, stderr } = await against(script, ["watch", "--timeout", "50ms"]);
      expect(code).toBe(5);
      expect(stderr).not.toBe("");
    }
  });

  test("ends without an error when the reader of its output is closed.", async () => {
    const terminal = new Terminal();
    const address = await server({ watch: changes });
    const outcome = terminal.run("watch", "--address", address);
    await terminal.until("stdout", "DELETED");
    terminal.stdout.destroy(Object.assign(new Error("gone"), { code: "EPIPE" }));
    expect(await outcome).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("Colours are used", () => {
  const added = wireResponse(1, [wireEvent("ADDED", "a", 1)]);
  const coloured = "\u001b[32mADDED";

  async function printed(options?: TerminalOptions): Promise<string> {
    const terminal = new Terminal(options);
    const address = await server({ watch: (call) => void call.write(added) });
    const outcome = terminal.run("watch", "--address", address);
    await terminal.until("stdout", "ADDED");
    terminal.interrupt();
    return (await outcome).stdout;
  }

  test("on a terminal.", async () => {
    vi.stubEnv("NO_COLOR", "");
    vi.stubEnv("TERM", "xterm");
    expect(await printed({ columns: 80 })).toContain(coloured);
  });

  test("neither with NO_COLOR, nor on a dumb terminal, nor in a pipe.", async () => {
    vi.stubEnv("NO_COLOR", "1");
    expect(await printed({ columns: 80 })).not.toContain("\u001b");
    vi.stubEnv("NO_COLOR", "");
    vi.stubEnv("TERM", "dumb");
    expect(await printed({ columns: 80 })).not.toContain("\u001b");
    vi.stubEnv("TERM", "xterm");
    expect(await printed()).not.toContain("\u001b");
  });
});

test("A conflict has its message on stderr, and nothing on stdout.", async () => {
  const script: Script = { put: (_, callback) => callback(statusOf(revisionConflict("k", 3, 5))) };
  const outcome = await against(script, ["put", "k", "v", "--expected-mod-revision", "3"]);
  expect(outcome.code).toBe(4);
  expect(outcome.stdout).toBe("");
  expect(outcome.stderr).toContain("its mod revision is 5");
});
