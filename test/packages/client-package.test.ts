import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import * as sources from "../../src/client/index.ts";
import { MemoryStorage, systemClock } from "../../src/index.ts";
import { CachedServer } from "../client/cached-server.ts";
import { InstalledApp } from "./installed-app.ts";

function manifestOf(folder: string): Record<string, Record<string, string>> {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

const service = manifestOf(join(import.meta.dirname, "../.."));

let app: InstalledApp;
let files: readonly string[];

beforeAll(async () => {
  app = await InstalledApp.with("watch-fanout-client");
  files = readdirSync(app.installed, { recursive: true, encoding: "utf8" });
});

afterAll(() => app.remove());

describe("The package of the client", () => {
  test("has the version of the service", () => {
    expect(manifestOf(app.installed)["version"]).toBe(service["version"]);
  });

  test("depends on gRPC, the OpenTelemetry API and a hash only, of which the service has the same", () => {
    const { dependencies = {} } = manifestOf(app.installed);
    expect(Object.keys(dependencies)).toEqual([
      "@grpc/grpc-js",
      "@grpc/proto-loader",
      "@opentelemetry/api",
      "xxhash-wasm",
    ]);
    const exact = (versions: Record<string, string> = {}) =>
      Object.keys(dependencies).map((name) => versions[name]?.replace("^", ""));
    expect(exact(dependencies)).toEqual(exact(service["dependencies"]));
  });

  test("contains the build, README, LICENSE and manifest, and nothing else", () => {
    const tops = new Set(files.map((file) => file.split("/")[0]));
    expect([...tops].sort()).toEqual(["LICENSE", "README.md", "dist", "package.json"]);
    expect(files.filter((file) => file.endsWith(".map"))).toEqual([]);
  });

  test("contains no module of the service", () => {
    const folders = files.filter((file) => /^dist\/[^/.]+$/.test(file)).sort();
    expect(folders.map((folder) => folder.slice("dist/".length))).toEqual([
      ...["base", "cache-files", "client", "codec", "model", "protobuf", "reflector"],
      ...["selector", "storage", "wire"],
    ]);
    expect(files.filter((file) => file.startsWith("dist/storage/etcd"))).toEqual([]);
  });

  test("imports its dependencies and modules of Node.js only, types included", () => {
    const imported = files
      .filter((file) => /\.(js|d\.ts)$/.test(file))
      .flatMap((file) => {
        const text = readFileSync(join(app.installed, file), "utf8");
        return [...text.matchAll(/\b(?:from |import |import\()"([^."\n][^"\n]*)"/g)];
      })
      .map(([, name = ""]) => name)
      .filter((name) => !name.startsWith("node:"));
    expect([...new Set(imported)].sort()).toEqual(
      Object.keys(manifestOf(app.installed)["dependencies"] ?? {}),
    );
  });

  test("exports what src/client/index.ts does", async () => {
    const names = await app.evaluate(`
      import * as exported from "watch-fanout-client";
      console.log(JSON.stringify(Object.keys(exported)));
    `);
    expect(names).toEqual(Object.keys(sources).sort());
  });

  test("calls a service", async () => {
    const server = await CachedServer.over(new MemoryStorage({ clock: systemClock }));
    onTestFinished(() => server.close());
    const seen = await app.evaluate(`
      import { connect, hasReason, jsonValues } from "watch-fanout-client";
      const client = connect({ address: "${server.address}" });
      const things = client.resource("things", jsonValues());
      const put = await things.put("a", { n: 1 });
      const absent = await things.get("b").catch((error) => hasReason(error, "OBJECT_NOT_FOUND"));
      client.close();
      console.log(JSON.stringify({ value: put.value, absent }));
    `);
    expect(seen).toEqual({ value: { n: 1 }, absent: true });
  });

  test("has types that check, with the types of Node.js as the only others", async () => {
    const errors = await app.typeErrors(
      'import { connect, jsonValues, SharedInformer } from "watch-fanout-client";\n' +
        "interface Pod { readonly node: string }\n" +
        'const pods = connect({ address: "127.0.0.1:1" }).resource("pods", jsonValues<Pod>());\n' +
        "export const pod: Promise<string> = pods.get('a').then(({ value }) => value.node);\n" +
        "export const informer: SharedInformer<Pod> = pods.informer({ logger: console });\n" +
        "export const noPod: number = pods;\n",
    );
    expect(errors).toEqual([
      expect.stringMatching(/^use\.ts\(6,14\): error TS2322: .*'TypedResource<Pod>'/),
    ]);
  });

  test("has a README whose example has types that check", async () => {
    const readme = readFileSync(join(app.installed, "README.md"), "utf8");
    const [, example = ""] = /```ts\n(.*?)```/s.exec(readme) ?? [];
    expect(example).toContain('from "watch-fanout-client"');
    expect(await app.typeErrors(example)).toEqual([""]);
  });
});
