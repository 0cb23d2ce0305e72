import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize, sep } from "node:path";
import { describe, expect, it } from "vitest";

/** Which layers of src/ a layer may import from, beside `base`, which every one may. Whatever is not named here, it may not. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
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
    "cacher",
    "client",
    "codec",
    "config",
    "etcd",
    "etcd-api",
    "identity",
    "model",
    "policy",
    "server",
    "storage",
    "telemetry",
    "wire",
  ],
  config: ["cacher", "codec", "identity", "policy"],
  telemetry: ["cacher", "etcd-api", "identity", "policy", "server", "storage"],
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
  server: ["cacher", "identity", "model", "policy", "selector", "storage", "wire"],
  client: ["codec", "model", "reflector", "selector", "storage", "wire"],
  policy: ["identity"],
  identity: [],
  cacher: ["codec", "model", "reflector", "selector", "storage"],
  reflector: ["model", "storage"],
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

/** Those of types included. */
function importsOf(file: string): string[] {
  const source = readFileSync(join("src", file), "utf8");
  const specifiers = source.matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]+)"/g);
  return [...specifiers].map(([, specifier = ""]) => normalize(join(dirname(file), specifier)));
}

const files = globSync("**/*.ts", { cwd: "src" }).sort();

describe("The layers of src/", () => {
  it("are all known", () => {
    const layers = new Set(files.map(layerOf));
    expect([...layers].filter((layer) => !(layer in mayImport))).toEqual([]);
  });

  it.each(Object.keys(mayImport))("%s imports only what is below it", (layer) => {
    const allowed = [layer, "base", ...(mayImport[layer] ?? [])];
    const wrong = files
      .filter((file) => layerOf(file) === layer)
      .flatMap((file) => importsOf(file).map((imported) => ({ file, imported })))
      .filter(({ imported }) => !allowed.includes(layerOf(imported)));
    expect(wrong).toEqual([]);
  });

  it("have no circle of folders", () => {
    const below = new Map<string, Set<string>>();
    for (const file of files) {
      const folder = dirname(file);
      const set = below.get(folder) ?? new Set();
      for (const imported of importsOf(file)) set.add(dirname(imported));
      below.set(folder, set);
      set.delete(folder);
    }
    // Removes folders without imports among the remaining ones, until only circles are left.
    for (let size = 0; size !== below.size; ) {
      size = below.size;
      for (const [folder, set] of below) {
        if (![...set].some((other) => below.has(other))) below.delete(folder);
      }
    }
    expect([...below.keys()]).toEqual([]);
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
