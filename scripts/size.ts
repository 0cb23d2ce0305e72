/**
 * Prints the size of the project: `npm run --silent size`, or `npm run --silent size -- FILE.tgz` to install that package
 * as well, into a folder for temporary files, and print what it brings.
 */
import { execFile } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { circlesIn, importsOf } from "./imports.ts";

const run = promisify(execFile);

/** Source that is written by hand, and what other sources are generated into. */
const sources = "src/**/*.ts";
const generated = "src/**/generated/**";

const pages = ["*.md", "{docs,deploy,examples,proto,.github}/**/*.md"];

/** Lines and files. */
export interface Amount {
  lines: number;
  files: number;
}

/** The hand-written source by folder of `src`, such as `src/cacher`; the files at its top belong to `src`. */
export function sourceByFolder(root: string): ReadonlyMap<string, Amount> {
  const folders = new Map<string, Amount>();
  for (const file of globSync(sources, { cwd: root, exclude: [generated] }).sort()) {
    const path = file.split("/");
    const folder = path.slice(0, Math.min(2, path.length - 1)).join("/");
    const amount = folders.get(folder) ?? { lines: 0, files: 0 };
    folders.set(folder, amount);
    amount.lines += readFileSync(join(root, file), "utf8").split("\n").length - 1;
    amount.files++;
  }
  return folders;
}

/** What TypeScript can't name, but is public: own fields of errors and of entries of `perf_hooks`, and public methods. */
const publicFields: readonly string[] = [
  ...["code", "stack", "kind", "detail", "close", "destroy", "ping"],
];

/** How the source gets at a field that has no type. */
const untyped = /\bReflect\.(?:get|set)\([^()]*(?:\([^()]*\))?[^()]*?,\s*"(\w+)"/g;
/** Fields of Node.js that begin with an underscore, and those that only have a symbol. */
const underscored = /(?<![`}])\.(_[a-z]\w*)\b(?!\.)/g;
const symbols = /\b(getOwnPropertySymbols)\(/g;

/**
 * The private fields of grpc-js and Node.js that the source uses, by file. A name that is read or set by reflection
 * counts unless it is known to be public.
 */
export function privateFields(root: string): ReadonlyMap<string, ReadonlySet<string>> {
  const found = new Map<string, Set<string>>();
  for (const file of globSync(sources, { cwd: root, exclude: [generated] }).sort()) {
    const code = readFileSync(join(root, file), "utf8").replaceAll(/^\s*(?:\/?\*|\/\/).*$/gm, "");
    const names = [untyped, underscored, symbols]
      .flatMap((pattern) => [...code.matchAll(pattern)].map(([, name = ""]) => name))
      .filter((name) => !publicFields.includes(name));
    if (names.length > 0) found.set(file, new Set(names));
  }
  return found;
}

/** Number of words in the Markdown of a folder. */
export function words(root: string): number {
  const files = globSync(pages, { cwd: root, exclude: ["**/node_modules/**"] });
  return files
    .map((file) => readFileSync(join(root, file), "utf8").match(/\S+/g)?.length ?? 0)
    .reduce((sum, count) => sum + count, 0);
}

/** Number of packages in a folder where npm has installed some, and the size of their files, in bytes. */
export function installedIn(folder: string): { readonly packages: number; readonly bytes: number } {
  const lock = JSON.parse(
    readFileSync(join(folder, "node_modules", ".package-lock.json"), "utf8"),
  ) as { readonly packages: Readonly<Record<string, unknown>> };
  const modules = join(folder, "node_modules");
  const bytes = globSync("**/*", { cwd: modules })
    .map((file) => statSync(join(modules, file)))
    .reduce((sum, stats) => sum + (stats.isFile() ? stats.size : 0), 0);
  return { packages: Object.keys(lock.packages).length, bytes };
}

async function install(tarball: string): Promise<ReturnType<typeof installedIn>> {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-size-"));
  try {
    const quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"];
    await run("npm", ["install", "--prefix", folder, ...quiet, resolve(tarball)], { cwd: folder });
    return installedIn(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The size of the project at `root`, as lines of a table. */
export function report(root: string): readonly string[] {
  const folders = [...sourceByFolder(root)].sort(([, a], [, b]) => b.lines - a.lines);
  const all: Amount = { lines: 0, files: 0 };
  for (const [, { lines, files }] of folders) {
    all.lines += lines;
    all.files += files;
  }
  const fields = privateFields(root);
  const names = new Set([...fields.values()].flatMap((set) => [...set]));
  return [
    "   lines  files  hand-written source",
    ...[...folders, ["in all", all] as const].map(
      ([name, { lines, files }]) =>
        `${String(lines).padStart(8)}${String(files).padStart(7)}  ${name}`,
    ),
    "",
    `circles of files: ${circlesIn(importsOf(root, [sources])).length}`,
    `private fields of grpc-js and Node.js: ${names.size}, files that use them: ${fields.size}`,
    ...[...fields].map(([file, set]) => `  ${file}: ${[...set].sort().join(", ")}`),
    `words of Markdown: ${words(root)}`,
  ];
}

if (import.meta.main) {
  const [tarball] = process.argv.slice(2);
  for (const line of report(".")) process.stdout.write(`${line}\n`);
  if (tarball !== undefined) {
    const { packages, bytes } = await install(tarball);
    const megabytes = (bytes / 1e6).toFixed(1);
    process.stdout.write(`installed from ${tarball}: ${packages} packages, ${megabytes} MB\n`);
  }
}
