import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as clientSources from "../../src/client/index.ts";
import * as sources from "../../src/index.ts";
import { InstalledApp } from "../packages/installed-app.ts";

const run = promisify(execFile);
const manifest = JSON.parse(readFileSync(join(import.meta.dirname, "../../package.json"), "utf8"));

let app: InstalledApp;

beforeAll(async () => {
  app = await InstalledApp.with("watch-fanout");
});

afterAll(() => app.remove());

describe("The package that npm pack makes", () => {
  test("contains the build, the protos, README, LICENSE and manifest, and nothing else", () => {
    const files = readdirSync(app.installed, { recursive: true, encoding: "utf8" });
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
    const command = join(app.installed, manifest.bin["watch-fanout"]);
    const { stdout, stderr } = await run(command, ["--version"], {
      cwd: app.folder,
      env: app.env,
    });
    expect({ stdout, stderr }).toEqual({ stdout: `${manifest.version}\n`, stderr: "" });
  });

  test("has a command that prints one line on an older Node.js", async () => {
    const preload =
      'data:text/javascript,Object.defineProperty(process,"versions",{value:{node:"20.20.2"}})';
    const command = join(app.installed, manifest.bin["watch-fanout"]);
    const ended = run(process.execPath, ["--import", preload, command, "serve"], {
      cwd: app.folder,
      env: app.env,
    });
    await expect(ended).rejects.toMatchObject({
      code: 1,
      stderr: `watch-fanout needs Node.js ${manifest.engines.node}, and ${process.execPath} is 20.20.2.\n`,
    });
  });

  test("exports what src/index.ts and src/client/index.ts do, its protos and its manifest", async () => {
    const found = await app.evaluate(`
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
    const code = await app.evaluate(`
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
    const seen = await app.evaluate(`
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
    const errors = await app.typeErrors(
      'import { type Storage, startServer } from "watch-fanout";\n' +
        "export const revision = (storage: Storage): Promise<number> => storage.currentRevision();\n" +
        "export const wrong: string = startServer;\n" +
        'import { connect, jsonValues } from "watch-fanout/client";\n' +
        "interface Pod { readonly node: string }\n" +
        'const pods = connect({ address: "127.0.0.1:1" }).resource("pods", jsonValues<Pod>());\n' +
        "export const pod: Promise<string> = pods.get('a').then(({ value }) => value.node);\n" +
        "export const noPod: number = pods;\n",
    );
    expect(errors).toEqual([
      expect.stringMatching(
        /^use\.ts\(3,14\): error TS2322: .* is not assignable to type 'string'/,
      ),
      expect.stringMatching(/^use\.ts\(8,14\): error TS2322: .*'TypedResource<Pod>'/),
    ]);
  });
});
