import { readFileSync } from "node:fs";
import { dirname, sep } from "node:path";
import { describe, expect, it } from "vitest";
import { circlesIn, foldersOf, importsOf } from "../scripts/imports.ts";

/** Which layers of src/ a layer may import from, beside `base`, which every one may. Whatever is not named here, it may not. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  testing: ["cacher", "client", "codec", "etcd", "model", "server", "storage"],
  ".": [
    "cacher",
    "codec",
    "etcd",
    "identity",
    "model",
    "policy",
    "selector",
    "server",
    "storage",
    "telemetry",
  ],
  cli: [
    "cache-files",
    "cacher",
    "client",
    "codec",
    "config",
    "etcd",
    "etcd-api",
    "etcd-server",
    "identity",
    "model",
    "policy",
    "server",
    "storage",
    "telemetry",
    "web",
    "wire",
    "xds",
  ],
  config: ["cacher", "codec", "identity", "policy", "xds"],
  telemetry: ["cacher", "etcd-api", "identity", "policy", "server", "storage", "xds"],
  "etcd-api": [
    "cacher",
    "etcd",
    "identity",
    "model",
    "policy",
    "protobuf",
    "server",
    "storage",
    "wire",
  ],
  web: ["protobuf", "server", "wire"],
  xds: ["cacher", "model", "policy", "protobuf", "server", "storage", "wire"],
  "etcd-server": ["etcd", "model", "protobuf", "storage", "wire"],
  server: ["cacher", "identity", "model", "policy", "selector", "storage", "wire"],
  client: ["cache-files", "codec", "model", "protobuf", "reflector", "selector", "storage", "wire"],
  policy: ["identity"],
  identity: [],
  cacher: ["cache-files", "codec", "model", "reflector", "selector", "storage"],
  reflector: ["cache-files", "model", "storage"],
  "cache-files": ["model", "protobuf"],
  codec: ["protobuf", "selector"],
  selector: [],
  storage: ["etcd", "model", "protobuf"],
  etcd: ["model", "protobuf", "wire"],
  wire: ["model", "protobuf"],
  model: ["protobuf"],
  protobuf: [],
  base: [],
};

function layerOf(file: string): string {
  return dirname(file).split(sep)[0] ?? ".";
}

const imports = importsOf("src", ["**/*.ts"]);
const files = [...imports.keys()];

describe("The layers of src/", () => {
  it("are all known", () => {
    const layers = new Set(files.map(layerOf));
    expect([...layers].filter((layer) => !(layer in mayImport))).toEqual([]);
  });

  it.each(Object.keys(mayImport))("%s imports only what is below it", (layer) => {
    const allowed = [layer, "base", ...(mayImport[layer] ?? [])];
    const wrong = files
      .filter((file) => layerOf(file) === layer)
      .flatMap((file) => [...(imports.get(file) ?? [])].map((imported) => ({ file, imported })))
      .filter(({ imported }) => !allowed.includes(layerOf(imported)));
    expect(wrong).toEqual([]);
  });

  it("have no circle of folders", () => {
    expect(circlesIn(foldersOf(imports))).toEqual([]);
  });

  it("load the files of kept states only for a client that keeps its state", () => {
    const client = files.filter((file) => layerOf(file) === "client");
    const loading = client.filter((file) =>
      /^import (?!type ).*cache-files/m.test(readFileSync(`src/${file}`, "utf8")),
    );
    expect(client.length).toBeGreaterThan(50);
    expect(loading).toEqual([]);
  });

  it("have one order", () => {
    const order = Object.keys(mayImport);
    const upward = order.flatMap((layer, at) =>
      (mayImport[layer] ?? [])
        .filter((below) => order.indexOf(below) <= at)
        .map((up) => [layer, up]),
    );
    expect(upward).toEqual([]);
  });
});

/** Each of them is checked together with all others: benchmarks import from tests, and tests from benchmarks. */
const checked = ["src", "bench", "scripts", "examples", "test"];

it("No files import each other in a circle, types included", () => {
  const all = importsOf(
    ".",
    checked.map((folder) => `${folder}/**/*.ts`),
  );
  for (const folder of checked) {
    expect([...all.keys()].some((file) => file.startsWith(`${folder}${sep}`))).toBe(true);
  }
  expect(circlesIn(all)).toEqual([]);
});
