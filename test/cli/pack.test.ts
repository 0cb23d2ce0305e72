import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isolatedEnvironment, packCopy } from "../../scripts/pack.ts";
import * as clientSources from "../../src/client/index.ts";
import * as sources from "../../src/index.ts";

const run = promisify(execFile);
const checkout = fileURLToPath(new URL("../..", import.meta.url));
const manifest = JSON.parse(readFileSync(join(checkout, "package.json"), "utf8"));

const folder = mkdtempSync(join(tmpdir(), "watch-fanout-pack-"));
const app = join(folder, "app");
const installed = join(app, "node_modules", "watch-fanout");
const env = isolatedEnvironment(folder);

/** Installs the package in an app. `npm test` has just packed it, and names the file; otherwise packs a copy. */
beforeAll(async () => {
  const tarball = process.env["PACKAGE"] ?? (await packCopy(folder));
  mkdirSync(installed, { recursive: true });
  await run("tar", ["-xzf", tarball, "-C", installed, "--strip-components=1"]);
  // It can import only its declared dependencies.
  for (const name of Object.keys(manifest.dependencies)) link(name);
});

afterAll(() => rmSync(folder, { recursive: true }));

/** Links the checkout's copy of a dependency into the app. */
function link(name: string): void {
  const path = join(app, "node_modules", name);
  mkdirSync(dirname(path), { recursive: true });
  symlinkSync(join(checkout, "node_modules", name), path);
}

/** Runs a module in the app, and returns the JSON that it prints. */
async function evaluate(source: string): Promise<unknown> {
  const args = ["--input-type=module", "--eval", source];
  const { stdout, stderr } = await run(process.execPath, args, { cwd: app, env });
  expect(stderr).toBe("");
  return JSON.parse(stdout);
}

describe("The package that npm pack makes", () => {
  test("contains the build, the protos, README, LICENSE and manifest, and nothing else", () => {
    const files = readdirSync(installed, { recursive: true, encoding: "utf8" });
    const tops = new Set(files.map((file) => file.split("/")[0]));
    expect([...tops].sort()).toEqual(["LICENSE", "README.md", "dist", "package.json", "proto"]);
    expect(files).toContain("proto/watchfanout/v1/list_watch_service.proto");
    expect(files).not.toContain("proto/released.binpb");
    // The build only removes types, so that its lines can be read without.
    expect(files.filter((file) => file.endsWith(".map"))).toEqual([]);
    for (const name of ["status.html", "status.css", "status.js"]) {
      expect(files).toContain(`dist/server/admin/status/page/${name}`);
    }
  });

  test("has a command that runs by itself", async () => {
    const { stdout, stderr } = await run(
      join(installed, manifest.bin["watch-fanout"]),
      ["--version"],
      {
        cwd: app,
        env,
      },
    );
    expect({ stdout, stderr }).toEqual({ stdout: `${manifest.version}\n`, stderr: "" });
  });

  test("has a command that prints one line on an older Node.js", async () => {
    const preload =
      'data:text/javascript,Object.defineProperty(process,"versions",{value:{node:"20.20.2"}})';
    const command = join(installed, manifest.bin["watch-fanout"]);
    const ended = run(process.execPath, ["--import", preload, command, "serve"], { cwd: app, env });
    await expect(ended).rejects.toMatchObject({
      code: 1,
      stderr: `watch-fanout needs Node.js ${manifest.engines.node}, and ${process.execPath} is 20.20.2.\n`,
    });
  });

  test("exports what src/index.ts and src/client/index.ts do, its protos and its manifest", async () => {
    const found = await evaluate(`
      import * as exported from "watch-fanout";
      import * as client from "watch-fanout/client";
      import manifest from "watch-fanout/package.json" with { type: "json" };
      const proto = import.meta.resolve("watch-fanout/proto/watchfanout/v1/write_service.proto");
      const [names, clientNames] = [exported, client].map(Object.keys);
      console.log(JSON.stringify({ names, clientNames, version: manifest.version, proto }));
    `);
    expect(found).toEqual({
      names: Object.keys(sources).sort(),
      clientNames: Object.keys(clientSources).sort(),
      version: manifest.version,
      proto: expect.stringMatching(/watch-fanout\/proto\/watchfanout\/v1\/write_service\.proto$/),
    });
  });

  test("serves a cache as a library", async () => {
    const code = await evaluate(`
      import { Cacher, MemoryStorage, startServer, systemClock } from "watch-fanout";
      import { credentials, Client } from "@grpc/grpc-js";
      import { pino } from "pino";
      const clock = systemClock, logger = pino({ level: "silent" });
      const storage = new MemoryStorage({ clock });
      const cacher = new Cacher({ storage, clock, logger, name: "things" });
      cacher.start();
      const listen = { host: "127.0.0.1", port: 0 };
      const server = await startServer({ resources: new Map([["things", cacher]]), listen, clock, logger });
      const client = new Client("127.0.0.1:" + server.port, credentials.createInsecure());
      const same = (bytes) => bytes;
      const response = await new Promise((resolve) => client.makeUnaryRequest(
        "/watchfanout.v1.ListWatchService/List", same, same, Buffer.from("\\x0a\\x06nobody"),
        (error) => resolve(error?.code ?? 0)));
      client.close();
      await server.drain(0);
      await cacher.close();
      console.log(JSON.stringify(response));
    `);
    expect(code).toBe(5);
  });

  test("has a client that needs no other package", async () => {
    const seen = await evaluate(`
      import { Cacher, MemoryStorage, startServer, systemClock } from "watch-fanout";
      import { connect, hasReason, jsonValues } from "watch-fanout/client";
      import { pino } from "pino";
      const clock = systemClock, logger = pino({ level: "silent" });
      const storage = new MemoryStorage({ clock });
      const cacher = new Cacher({ storage, clock, logger, name: "things" });
      cacher.start();
      const listen = { host: "127.0.0.1", port: 0 };
      const server = await startServer({ resources: new Map([["things", cacher]]), listen, clock, logger });
      const client = connect({ address: "127.0.0.1:" + server.port });
      const things = client.resource("things", jsonValues());
      const put = await things.put("a", { n: 1 });
      const updated = await things.update("a", ({ n }) => ({ n: n + 1 }));
      const absent = await things.get("b").catch((error) => hasReason(error, "OBJECT_NOT_FOUND"));
      const received = [];
      for await (const { events } of things.watch({ afterRevision: put.modRevision })) {
        for (const { type, object } of events) received.push([type, object.value]);
        if (events.length > 0) break;
      }
      client.close();
      await server.drain(0);
      await cacher.close();
      console.log(JSON.stringify({ value: updated.value, absent, received }));
    `);
    expect(seen).toEqual({ value: { n: 2 }, absent: true, received: [["MODIFIED", { n: 2 }]] });
  });

  test("has types that check, with the types of Node.js as the only others", async () => {
    link("@types/node");
    await writeFile(
      join(app, "use.ts"),
      'import { type Storage, startServer } from "watch-fanout";\n' +
        "export const revision = (storage: Storage): Promise<number> => storage.currentRevision();\n" +
        "export const wrong: string = startServer;\n" +
        'import { connect, jsonValues } from "watch-fanout/client";\n' +
        "interface Pod { readonly node: string }\n" +
        'const pods = connect({ address: "127.0.0.1:1" }).resource("pods", jsonValues<Pod>());\n' +
        "export const pod: Promise<string> = pods.get('a').then(({ value }) => value.node);\n" +
        "export const noPod: number = pods;\n",
    );
    const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024"];
    const tsc = join(checkout, "node_modules", ".bin", "tsc");
    const checked = run(tsc, [...options, "--types", "node", "use.ts"], { cwd: app, env });
    const { stdout } = await checked.catch((error: { readonly stdout: string }) => error);
    expect(stdout.trim().split("\n")).toEqual([
      expect.stringMatching(
        /^use\.ts\(3,14\): error TS2322: .* is not assignable to type 'string'/,
      ),
      expect.stringMatching(/^use\.ts\(8,14\): error TS2322: .*'TypedResource<Pod>'/),
    ]);
  });
});
