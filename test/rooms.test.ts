import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize, sep } from "node:path";
import { describe, expect, it } from "vitest";

/** Which rooms of src/ a room may import from. Whatever is not named here, it may not. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  ".": ["cacher", "codec", "selector", "server", "storage", "telemetry"],
  cli: ["cacher", "client", "codec", "config", "server", "storage", "telemetry", "wire"],
  config: ["cacher", "codec"],
  telemetry: ["cacher", "server", "storage"],
  server: ["cacher", "selector", "storage", "wire"],
  client: ["codec", "reflector", "selector", "storage", "wire"],
  wire: ["protobuf", "storage"],
  cacher: ["codec", "reflector", "selector", "storage"],
  reflector: ["storage"],
  codec: ["protobuf", "selector"],
  selector: [],
  storage: ["protobuf"],
  protobuf: [],
};

/** Files directly in src/ that every room may import: they import no room themselves. */
const ground = [
  "abort.ts",
  "clock.ts",
  "errors.ts",
  "text-memory.ts",
  "event-loop-turns.ts",
  "time-slices.ts",
];

function roomOf(file: string): string {
  return dirname(file).split(sep)[0] ?? ".";
}

function importsOf(file: string): string[] {
  const source = readFileSync(join("src", file), "utf8");
  const specifiers = source.matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]+)"/g);
  return [...specifiers].map(([, specifier = ""]) => normalize(join(dirname(file), specifier)));
}

const files = globSync("**/*.ts", { cwd: "src" }).sort();

describe("The rooms of src/", () => {
  it("are all known", () => {
    const rooms = new Set(files.map(roomOf));
    expect([...rooms].filter((room) => !(room in mayImport))).toEqual([]);
  });

  it.each(Object.keys(mayImport))("%s imports only what is below it", (room) => {
    const wrong = files
      .filter((file) => roomOf(file) === room)
      .flatMap((file) => importsOf(file).map((imported) => ({ file, imported })))
      .filter(({ imported }) => !ground.includes(imported))
      .filter(({ imported }) => ![room, ...(mayImport[room] ?? [])].includes(roomOf(imported)));
    expect(wrong).toEqual([]);
  });

  it("stand on ground that imports no room", () => {
    expect(ground.flatMap(importsOf).filter((imported) => !ground.includes(imported))).toEqual([]);
  });

  it("make no circles", () => {
    const order = Object.keys(mayImport);
    const upward = order.flatMap((room, at) =>
      (mayImport[room] ?? []).filter((below) => order.indexOf(below) <= at).map((up) => [room, up]),
    );
    expect(upward).toEqual([]);
  });
});
