import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { parseTokenFile, StaticTokens, tokenDigest } from "../../../src/identity/token-file.ts";
import { startAdmin } from "../../../src/server/admin/admin.ts";
import { BackupPage } from "../../../src/server/admin/backup-page.ts";

type Source = (path: string, signal: AbortSignal) => Promise<void>;

const content = Buffer.alloc(300_000, "content");

/** An admin port whose backups are made by `make`. */
async function serve(make: Source | undefined, refusal?: string, tokens?: StaticTokens) {
  const folder = mkdtempSync(join(tmpdir(), "backup-page-"));
  const logged: Record<string, unknown>[] = [];
  const logger = pino(
    { base: null, timestamp: false },
    { write: (line) => logged.push(JSON.parse(line)) },
  );
  const page = new BackupPage({
    source: () => make && { backup: (path, signal = AbortSignal.abort()) => make(path, signal) },
    temporaryFolder: join(folder, "backup"),
    ...{ refusal, logger },
  });
  const admin = await startAdmin({
    ...{ listen: { host: "127.0.0.1", port: 0 }, logger, backup: page, tokens },
    readiness: () => [],
    metrics: { contentType: "text/plain", render: async () => "" },
  });
  onTestFinished(async () => {
    await page.close();
    await admin.close();
    rmSync(folder, { recursive: true });
  });
  return { page, folder, logged, url: `http://127.0.0.1:${admin.port}/backup` };
}

function requested(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get(url, resolve).on("error", reject);
  });
}

test("A backup is sent whole, and its copy is removed.", async () => {
  const { url, folder } = await serve(async (path) => writeFileSync(path, content));
  mkdirSync(join(folder, "backup"));
  writeFileSync(join(folder, "backup", "copy"), "of a process that was killed");
  const response = await requested(url);
  expect(response.statusCode).toBe(200);
  expect(response.headers["content-length"]).toBe(String(content.length));
  expect((await buffer(response)).equals(content)).toBe(true);
  await expect.poll(() => readdirSync(folder)).toEqual([]);
});

test("While a backup is in progress, another one is refused; afterwards it is not.", async () => {
  const finishes: (() => void)[] = [];
  const { url, folder } = await serve(async (path) => {
    await new Promise<void>((resolve) => finishes.push(resolve));
    writeFileSync(path, content);
  });
  const first = requested(url);
  await expect.poll(() => finishes.length).toBe(1);
  expect((await fetch(url)).status).toBe(409);
  finishes[0]?.();
  expect((await buffer(await first)).length).toBe(content.length);
  await expect.poll(() => existsSync(join(folder, "backup"))).toBe(false);
  const again = requested(url);
  await expect.poll(() => finishes.length).toBe(2);
  expect((await fetch(url)).status).toBe(409);
  finishes[1]?.();
  expect((await again).statusCode).toBe(200);
});

test("The end of its request ends a backup, and so does a shutdown.", async () => {
  const signals: AbortSignal[] = [];
  const { url, page, folder, logged } = await serve(
    (_, signal) =>
      new Promise((_resolve, reject) => {
        signals.push(signal);
        signal.addEventListener("abort", () => reject(signal.reason));
      }),
  );
  const request = get(url).on("error", () => {});
  await expect.poll(() => signals.length).toBe(1);
  request.destroy();
  await expect.poll(() => signals[0]?.aborted).toBe(true);
  await expect.poll(() => existsSync(join(folder, "backup"))).toBe(false);
  const second = requested(url);
  await expect.poll(() => signals.length).toBe(2);
  await page.close();
  expect((await second).statusCode).toBe(500);
  const msg = "a backup of the embedded store was cancelled";
  // One line each, without a stack trace.
  expect(logged.filter((line) => line["msg"] === msg)).toEqual([
    { level: 30, problem: "The client has ended the request.", msg },
    { level: 30, problem: "The service shuts down.", msg },
  ]);
});

test("A failure is a response with its reason.", async () => {
  const { url } = await serve(() => Promise.reject(new Error("The disk is full.")));
  const response = await fetch(url);
  expect([response.status, await response.text()]).toEqual([500, "The disk is full.\n"]);
});

test("A store that is not open, a refusal, and HEAD make no backup.", async () => {
  const loading = await serve(undefined);
  expect((await fetch(loading.url)).status).toBe(503);
  const refusing = await serve(() => Promise.reject(new Error("made")), "Not here.");
  const refused = await fetch(refusing.url);
  expect([refused.status, await refused.text()]).toEqual([403, "Not here.\n"]);
  const head = await serve(() => Promise.reject(new Error("made")));
  const { status, headers } = await fetch(head.url, { method: "HEAD" });
  expect([status, headers.get("content-type")]).toEqual([200, "application/vnd.sqlite3"]);
});

test("With tokens a backup needs one with the group `backup`: that of monitoring is not enough.", async () => {
  const of = (token: string): string => `sha256:${tokenDigest(token)}`;
  const lines = `${of("secret")} prometheus\n${of("other")} ops,backup\n`;
  const tokens = new StaticTokens(parseTokenFile(Buffer.from(lines)), () => {});
  const { url } = await serve(async (path) => writeFileSync(path, content), undefined, tokens);
  const statusOf = async (token: string): Promise<number> => {
    const response = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
    await response.arrayBuffer();
    return response.status;
  };
  expect((await fetch(url)).status).toBe(401);
  expect(await statusOf("secret")).toBe(403);
  expect(await statusOf("other")).toBe(200);
});
