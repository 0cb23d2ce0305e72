import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startService } from "../../../src/cli/serve/main-process.ts";
import { startUpText } from "../../../src/cli/serve/start-up-text.ts";
import { loadConfig } from "../../../src/config/load-config.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { Authority } from "../../identity/authority.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";

test("New versions of the admin port's certificate and tokens are applied", async () => {
  const folder = mkdtempSync(join(tmpdir(), "admin-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string): string => join(folder, name);
  const write = async (authority: Authority, token: string): Promise<void> => {
    const { cert, key } = await authority.issueForServer();
    writeFileSync(file("cert"), cert);
    writeFileSync(file("key"), key);
    writeFileSync(file("tokens"), `sha256:${tokenDigest(token)} prometheus\n`);
  };
  const [first, second] = [await Authority.create("CN=1"), await Authority.create("CN=2")];
  await write(first, "old");
  const clock = new ManualTimers();
  const flags = {
    ...{ listen: ["127.0.0.1:0"], admin: ["127.0.0.1:0"], data: [":memory:"] },
    ...{ "admin-tls-cert": [file("cert")], "admin-tls-key": [file("key")] },
    "admin-token-file": [file("tokens")],
  };
  const config = loadConfig({ flags, env: {}, readFile: (path) => readFileSync(path) });
  const service = await startService(config, clock, pino({ level: "silent" }));
  onTestFinished(async () => {
    const stopped = service.stop();
    clock.advance(20_000);
    await stopped;
  });
  expect(startUpText(config, service)).toMatch(/admin +https:.*\/metrics \(with a token\)\n/);

  /** The status of /metrics; undefined without a connection. */
  const ask = (ca: Authority, token: string): Promise<number | undefined> =>
    new Promise((resolve) => {
      const { port } = service.admin;
      const headers = { authorization: `Bearer ${token}` };
      const options = { host: "127.0.0.1", port, path: "/metrics", ca: ca.cert, headers };
      get({ ...options, agent: false }, (response) => {
        response.resume();
        resolve(response.statusCode);
      }).on("error", () => resolve(undefined));
    });
  expect([await ask(first, "old"), await ask(first, "new")]).toEqual([200, 401]);
  await write(second, "new");
  clock.advance(1_000);
  while ((await ask(second, "new")) !== 200) clock.advance(1_000);
  expect([await ask(second, "old"), await ask(first, "new")]).toEqual([401, undefined]);
});
