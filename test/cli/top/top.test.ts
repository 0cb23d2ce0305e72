import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { PassThrough, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { Command } from "commander";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { addTop, type TopIo } from "../../../src/cli/top/top.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { Tier, temporaryFiles, until } from "../../relay/tiers.ts";
import type { TestClient } from "../../server/test-client.ts";
import { adminUrl, openWatches } from "../../status/streaming-service.ts";
import { startServe } from "../serve/serve-process.ts";

/** A process with a terminal of 100 columns and 30 rows, or without one. */
class FakeProcess implements TopIo {
  readonly stdin = new PassThrough();
  readonly stdout: TopIo["stdout"];
  readonly stderr = new PassThrough();
  text = "";
  errors = "";
  exitCode = 0;

  constructor(isTTY: boolean) {
    const stdout = new PassThrough();
    this.stdout = Object.assign(stdout, { isTTY, columns: 100, rows: 30 });
    stdout.on("data", (chunk) => {
      this.text += chunk;
    });
    this.stderr.on("data", (chunk) => {
      this.errors += chunk;
    });
  }

  exitWith(code: number): void {
    this.exitCode = code;
  }

  /** Runs `top` until it ends. */
  async run(...flags: string[]): Promise<void> {
    const program = new Command().exitOverride().configureOutput({
      writeErr: (text) => {
        this.errors += text;
      },
    });
    addTop(program, this);
    await program.parseAsync(["top", ...flags], { from: "user" });
    // What was written last is read in a later turn.
    await new Promise((resolve) => setImmediate(resolve));
  }
}

let tier: Tier;
let client: TestClient;
let url: string;

beforeAll(async () => {
  tier = await Tier.start({});
  url = adminUrl(tier, "");
  client = tier.bare();
  await openWatches(client, [
    ...Array.from({ length: 200 }, (_, i) => ({ key: `k/${i}` })),
    { prefix: "\u001b[2Jevil/" },
  ]);
});

afterAll(() => tier?.stop());

describe("top --once", () => {
  test("prints the status with 50 streams, without control sequences", async () => {
    const run = new FakeProcess(false);
    await run.run("--once", "--url", url);
    expect([run.exitCode, run.errors]).toEqual([0, ""]);
    expect(run.text).toMatch(
      /^(?:ok: 201 open streams, none behind; 1 resource of the embedded store|degraded: the event loop .*)\n\S+, watch-fanout \S+, ready, up \d+s, embedded store\n/,
    );
    expect(run.text).toMatch(/^default +connected +1 +0 +0 +1\.\.1 +0 +0 B$/m);
    expect(run.text).toMatch(/^service +ready +\d+ +\d+ +201 /m);
    expect(run.text).toContain("\nstreams 201: 201 live\n");
    expect(run.text.match(/^anonymous at /gm)).toHaveLength(50);
    expect(run.text).not.toContain("\u001b");
  });

  test("sorts, searches and limits the streams", async () => {
    const run = new FakeProcess(false);
    const flags = ["--sort", "scope", "--order", "asc", "--search", "k/1", "--limit", "2"];
    await run.run("--once", "--url", url, ...flags);
    // k/1, k/10 to k/19, k/100 to k/199.
    expect(run.text).toContain("\nstreams 111 of 201: 111 live\n");
    expect([...run.text.matchAll(/ key (\S+)/g)].map(([, key]) => key)).toEqual(["k/1", "k/10"]);
  });

  test("escapes what clients choose", async () => {
    const run = new FakeProcess(false);
    await run.run("--once", "--url", url, "--search", "evil");
    expect(run.text).toContain("prefix \\u{1b}[2Jevil/");
  });

  test("escapes what another program responds in place of the service", async () => {
    const status = await (await fetch(`${url}/status.json?limit=1`)).text();
    const forged = status
      .replace('"state":"connected"', '"state":"\\u001b]0;evil\\u0007"')
      .replace('"state":"live"', '"state":"\\u001b[2J"');
    const server = createServer((_, response) => void response.end(forged));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const run = new FakeProcess(false);
    const { port } = server.address() as AddressInfo;
    await run.run("--once", "--url", `http://127.0.0.1:${port}`);
    expect(run.text).toContain("\\u{1b}]0;evil");
    expect(run.text).not.toContain("\u001b");
  });

  test("needs a token where the admin port does", async () => {
    const files = temporaryFiles({ admin: `sha256:${tokenDigest("t")} a\n`, token: "t\n" });
    const guarded = await Tier.start({ "admin-token-file": files.admin });
    onTestFinished(() => guarded.stop());
    const refused = new FakeProcess(false);
    await refused.run("--once", "--url", adminUrl(guarded, ""));
    expect(refused.exitCode).toBe(6);
    expect(refused.errors).toContain("needs a token. Name the file with the token by --bearer-");
    const accepted = new FakeProcess(false);
    const flags = ["--bearer-token-file", files.token];
    await accepted.run("--once", "--url", adminUrl(guarded, ""), ...flags);
    expect([accepted.exitCode, accepted.errors]).toEqual([0, ""]);
  });

  test("names TLS that is missing on either side, and an authority that is not trusted", async () => {
    const [cert, key] = ["cert", "key"].map((name) =>
      fileURLToPath(new URL(`../../config/certificates/${name}.pem`, import.meta.url)),
    ) as [string, string];
    const { process, admin } = await startServe([
      ...["--admin-tls-cert", cert, "--admin-tls-key", key],
    ]);
    onTestFinished(() => process[Symbol.asyncDispose]());
    const errorsOf = async (...flags: string[]): Promise<string> => {
      const run = new FakeProcess(false);
      await run.run("--once", ...flags);
      expect(run.exitCode).toBe(5);
      return run.errors;
    };
    expect(await errorsOf("--url", admin.replace("https:", "http:"))).toMatch(
      /it closed the connection without a response\. If it uses TLS: write https:\/\/ in --url, and set --tls-ca/,
    );
    expect(await errorsOf("--url", admin)).toMatch(
      /its certificate is not of a trusted authority\. Set --tls-ca to the authority that has signed it\.\n$/,
    );
    expect(await errorsOf("--url", url.replace("http:", "https:"))).toMatch(
      /it does not use TLS\. Use the port with TLS, or write http:\/\/ in --url\.\n$/,
    );
  });

  test.each([
    [
      ["--url", "http://127.0.0.1:1"],
      5,
      "http://127.0.0.1:1 does not respond: connect ECONNREFUSED",
    ],
    [["--limit", "0"], 2, 'limit is "0". It must be a whole number from 1 to 500.'],
    [["--bearer-token-file", "/no/such/file"], 2, "The file /no/such/file can't be read"],
  ])("fails with %j", async (flags, code, message) => {
    const run = new FakeProcess(false);
    await run.run("--once", "--url", url, ...flags);
    expect([run.exitCode, run.text]).toEqual([code, ""]);
    expect(run.errors).toContain(message);
  });

  test.each([
    [["--url", "127.0.0.1:8080"], "It must be a URL, such as http://127.0.0.1:8080."],
    [["--sort", "size"], "Allowed choices are age,"],
  ])("refuses %j", async (flags, message) => {
    const run = new FakeProcess(false);
    await expect(run.run("--once", ...flags)).rejects.toThrow();
    expect(run.errors).toContain(message);
  });
});

test("top --once ends in silence if the reader of its output has ended, as head does", async () => {
  const run = new FakeProcess(false);
  const closed = Object.assign(new Error("write EPIPE"), { code: "EPIPE" });
  Object.assign(run, { stdout: new Writable({ write: (_, __, done) => done(closed) }) });
  await run.run("--once", "--url", url);
  expect([run.exitCode, run.errors]).toEqual([0, ""]);
});

describe("top", () => {
  test("needs a terminal", async () => {
    const run = new FakeProcess(false);
    await expect(run.run("--url", url)).rejects.toThrow();
    expect(run.errors).toContain("top needs a terminal. To print the status once, use --once.");
  });

  test("updates the screen within its size until q is pressed, and leaves it as it was", async () => {
    const run = new FakeProcess(true);
    const ended = run.run("--url", url);
    await until(async () => run.text.split("\u001b[H").length > 2);
    const [, screen = ""] = run.text.split("\u001b[H");
    expect(screen.split("\r\n").length).toBeLessThanOrEqual(30);
    // Without colours.
    const lines = stripVTControlCharacters(screen).split("\r\n");
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(100);
    run.stdin.write("q");
    await ended;
    expect(run.text.startsWith("\u001b[?1049h\u001b[?25l")).toBe(true);
    expect(run.text.endsWith("\u001b[?25h\u001b[?1049l")).toBe(true);
    expect(run.exitCode).toBe(0);
  });

  test("ends if its terminal has gone", async () => {
    const run = new FakeProcess(true);
    const ended = run.run("--url", url);
    await until(async () => run.text.includes("ready, up"));
    run.stdout.destroy(Object.assign(new Error("write EIO"), { code: "EIO" }));
    await ended;
    expect(run.errors).toBe("");
  });

  test("continues while the service does not respond, and shows why", async () => {
    const other = await Tier.start({});
    const run = new FakeProcess(true);
    const ended = run.run("--url", adminUrl(other, ""));
    await until(async () => run.text.includes("ready, up"));
    await other.stop();
    await until(async () => run.text.includes("does not respond: "));
    run.stdin.write("\u0003");
    await ended;
    expect([run.exitCode, run.errors]).toEqual([0, ""]);
  });
});
