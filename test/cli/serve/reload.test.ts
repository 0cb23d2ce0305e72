import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { startService } from "../../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../../src/config/load-config.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { Authority } from "../../identity/authority.ts";
import { Issuer, keySetContent } from "../../identity/issuer.ts";
import { bearer, clientWith } from "../../server/authenticated-calls.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { portOf } from "./port-of.ts";

const resource = "default";
const [first, second] = [await Authority.create("CN=First"), await Authority.create("CN=Second")];
const [issuer, nextIssuer] = [await Issuer.create("one"), await Issuer.create("two")];
const exp = Date.now() / 1_000 + 3_600;
const tokens = (token: string): string => `sha256:${tokenDigest(token)} machine\n`;

/** A folder with files, replaced all at once as Kubernetes does it. */
class MountedFolder {
  readonly path = mkdtempSync(join(tmpdir(), "mounted-"));
  #version = 0;

  constructor(files: Readonly<Record<string, string | Buffer>>) {
    onTestFinished(() => rmSync(this.path, { recursive: true }));
    this.replace(files);
    for (const name of Object.keys(files)) symlinkSync(`..data/${name}`, join(this.path, name));
  }

  replace(files: Readonly<Record<string, string | Buffer>>): void {
    const version = `..v${++this.#version}`;
    mkdirSync(join(this.path, version));
    for (const [name, content] of Object.entries(files)) {
      writeFileSync(join(this.path, version, name), content);
    }
    symlinkSync(version, join(this.path, "..data_tmp"));
    renameSync(join(this.path, "..data_tmp"), join(this.path, "..data"));
  }

  file(name: string): string {
    return join(this.path, name);
  }
}

async function versionOf(authority: Authority, signer: Issuer, token: string) {
  const { cert, key } = await authority.issueForServer();
  return {
    ...{ "tls.crt": cert, "tls.key": key, "ca.crt": authority.cert },
    ...{ tokens: tokens(token), "keys.json": keySetContent(signer) },
  };
}

async function serve(folder: MountedFolder) {
  const clock = new ManualTimers();
  const lines: { msg: string; kind?: string }[] = [];
  const logger = pino({}, { write: (line) => lines.push(JSON.parse(line)) });
  const flags = {
    ...{ listen: ["127.0.0.1:0"], admin: ["127.0.0.1:0"], data: [":memory:"] },
    ...{ "tls-cert": [folder.file("tls.crt")], "tls-key": [folder.file("tls.key")] },
    ...{ "tls-client-ca": [folder.file("ca.crt")], "tls-client-auth": ["request"] },
    ...{ "token-file": [folder.file("tokens")], "jwt-jwks": [folder.file("keys.json")] },
    ...{ "jwt-issuer": ["https://issuer.example"], "jwt-audience": ["watch-fanout"] },
  };
  const config = loadConfig({ flags, env: {}, readFile: (path) => readFileSync(path) });
  const service = await startService(config, clock, logger);
  onTestFinished(async () => {
    const stopped = service.stop();
    clock.advance(20_000);
    await stopped;
  });
  const port = portOf(service);
  const metrics = async (): Promise<string> =>
    (await fetch(`http://127.0.0.1:${service.admin.port}/metrics`)).text();
  /**
   * Lets time pass, after which files are checked, until the metrics have these lines. In steps that are short beside the
   * second in which a client has to accept a status: one may come after the version was applied.
   */
  const untilChecked = async (...expected: readonly string[]): Promise<void> => {
    for (const line of expected) {
      while (!(await metrics()).split("\n").includes(line)) clock.advance(100);
    }
  };
  return { port, lines, untilChecked };
}

/** Whether a response has the last object that the test writes. */
const isLast = ({ events }: { events: { object: { key: string } | null }[] }): boolean =>
  events.some(({ object }) => object?.key === "b");

const kinds = ["server-certificate", "client-ca", "token-file", "jwks"];

const reloads = (kind: string, result: string, count: number): string =>
  `watch_fanout_file_reloads_total{file="${kind}",result="${result}"} ${count}`;

describe("New versions of the mounted files are applied", () => {
  test("under load, without an interruption of open streams, and to new calls at once", async () => {
    const folder = new MountedFolder(await versionOf(first, issuer, "old"));
    const { port, untilChecked } = await serve(folder);
    const old = clientWith(port, await first.issue(), first.cert);
    const oldJwt = bearer(await issuer.sign({ exp }));
    const watches = Array.from({ length: 50 }, (_, i) =>
      old.watch({ resource }, i % 2 === 0 ? oldJwt : {}),
    );
    await Promise.all(watches.map((watch) => watch.next()));
    const oldToken = old.watch({ resource }, bearer("old"));
    await oldToken.next();
    const reading = watches.map((watch) => watch.until(isLast));
    oldToken.until(isLast).catch(() => {});
    let isWriting = true;
    const writing = (async () => {
      let written = 0;
      for (; isWriting; written++) {
        await old.put({ resource, key: "a", value: Buffer.from(`${written}`) });
      }
      return written;
    })();

    // Both authorities, as long as clients have certificates of the first one.
    const next = await versionOf(second, nextIssuer, "new");
    folder.replace({ ...next, "ca.crt": Buffer.concat([first.cert, second.cert]) });
    await untilChecked(...kinds.map((kind) => reloads(kind, "applied", 1)));
    const client = clientWith(port, await second.issue(), second.cert);
    await client.put({ resource, key: "b", value: Buffer.from("last") }, bearer("new"));
    await client.get({ resource, key: "b" }, bearer(await nextIssuer.sign({ exp })));
    for (const call of [oldJwt, bearer("old")]) {
      const refused = client.get({ resource, key: "b" }, call);
      await expect(refused).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    }
    const unknown = await (await Authority.create("CN=Unknown")).issue();
    const stranger = clientWith(port, unknown, second.cert);
    await expect(stranger.get({ resource, key: "b" })).rejects.toMatchObject({
      reason: "UNAUTHENTICATED",
    });
    const untrusting = clientWith(port, undefined, first.cert).get({ resource, key: "b" });
    await expect(untrusting).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });

    isWriting = false;
    const written = await writing;
    // Every event arrives once and in order, on every stream that was open.
    for (const responses of await Promise.all(reading)) {
      const events = responses.flatMap((response) => response.events);
      const values = events
        .filter(({ object }) => object?.key === "a")
        .map(({ object }) => Number(object?.value.toString()));
      expect(values).toEqual(values.map((_, i) => i));
      expect(values.length).toBeLessThanOrEqual(written);
      expect(values.length).toBeGreaterThan(0);
    }
    // The first authority is withdrawn.
    folder.replace(next);
    await untilChecked(reloads("client-ca", "applied", 2));
    for (const watch of watches) {
      expect(await watch.ended).toMatchObject({
        reason: "UNAUTHENTICATED",
        metadata: { resume_revision: expect.stringMatching(/^\d+$/) },
      });
    }
    expect(await oldToken.ended).toMatchObject({
      reason: "UNAUTHENTICATED",
      metadata: { resume_revision: expect.stringMatching(/^\d+$/) },
    });
  });

  test("and refused if they are broken, with a log line and a metric, while the ones before stay", async () => {
    const version = await versionOf(first, issuer, "old");
    const folder = new MountedFolder(version);
    const { port, untilChecked, lines } = await serve(folder);
    const client = clientWith(port, undefined, first.cert);
    const key = { resource, key: "a" };
    await client.put({ ...key, value: Buffer.from("1") }, bearer("old"));
    const { key: otherKey } = await second.issueForServer();
    const broken = "secret-token machine";
    folder.replace({ "tls.crt": version["tls.crt"], "tls.key": otherKey, "ca.crt": "no" });
    writeFileSync(folder.file("..data/tokens"), broken);
    writeFileSync(folder.file("..data/keys.json"), "{}");
    await untilChecked(...kinds.map((kind) => reloads(kind, "refused", 1)));
    const refusals = lines.filter(({ msg }) => msg.startsWith("refused a new version"));
    expect(refusals.map(({ kind }) => kind).sort()).toEqual([
      ...["client-ca", "jwks", "server-certificate", "token-file"],
    ]);
    expect(JSON.stringify(lines)).not.toContain("secret-token");
    expect(JSON.stringify(lines)).not.toContain("PRIVATE KEY");
    const another = clientWith(port, await first.issue(), first.cert);
    for (const call of [bearer("old"), bearer(await issuer.sign({ exp })), {}]) {
      await another.get(key, call);
    }
  });
});
