/**
 * Generates the files that are derived from the protos: the descriptor set for server reflection, the TypeScript types,
 * the definitions that the client and the service load, and the descriptor set of the types of xDS. With `--check` it writes nothing and fails if the committed
 * files differ.
 */
import { spawnSync } from "node:child_process";
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { argv, exit, stderr } from "node:process";
import { xdsFiles } from "./xds-files.ts";

const types = "src/wire/generated";
const descriptors = "proto/watchfanout.binpb";
const xdsDescriptors = "proto/xds.binpb";

function run(command: string, args: readonly string[]): void {
  const { status, error, stderr: said } = spawnSync(command, args, { encoding: "utf8" });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed:\n${said}`);
}

function generate(typesFolder: string, descriptorFile: string): void {
  run("buf", ["build", "--as-file-descriptor-set", "--output", descriptorFile]);
  const protos = globSync("**/*.proto", { cwd: "proto" }).sort();
  run("proto-loader-gen-types", [
    ...["--keepCase", "--longs=String", "--enums=String", "--defaults", "--oneofs"],
    ...["--includeComments", "--grpcLib=@grpc/grpc-js", "--importFileExtension=.ts"],
    ...["--includeDirs=proto", `--outDir=${typesFolder}`, ...protos],
  ]);
  const json = JSON.stringify(definitions(protos), null, 2);
  writeFileSync(
    join(typesFolder, "proto-json.ts"),
    `/** All protos, as protobufjs writes them in JSON: nothing is read or parsed at import. */\nexport const protoJson: object = ${json};\n`,
  );
}

/** The types that values of xDS may have in JSON, with what they consist of. */
function generateXds(descriptorFile: string): void {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-xds-"));
  try {
    for (const [name, content] of xdsFiles()) {
      const file = join(folder, name);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, content);
    }
    const options = ["--as-file-descriptor-set", "--exclude-source-info"];
    run("buf", ["build", folder, ...options, "--output", descriptorFile]);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The part of protobufjs that parses protos. */
interface Protobufjs {
  readonly Root: new () => {
    resolvePath: (origin: string, target: string) => string;
    loadSync(files: readonly string[], options: { readonly keepCase: true }): unknown;
    toJSON(): object;
  };
}

function definitions(protos: readonly string[]): object {
  // The one that proto-loader loads them with.
  const protoLoader = createRequire(import.meta.url).resolve("@grpc/proto-loader");
  const protobuf = createRequire(protoLoader)("protobufjs") as Protobufjs;
  const root = new protobuf.Root();
  root.resolvePath = (_, target) => join("proto", target);
  root.loadSync(protos, { keepCase: true });
  return root.toJSON();
}

function contents(folder: string): Map<string, string> {
  const files = globSync("**/*.ts", { cwd: folder }).sort();
  return new Map(files.map((file) => [file, readFileSync(join(folder, file), "utf8")]));
}

function differences(freshTypes: string, freshDescriptors: string, freshXds: string): string[] {
  const fresh = contents(freshTypes);
  const committed = contents(types);
  const names = new Set([...fresh.keys(), ...committed.keys()]);
  const differing = [...names].filter((name) => fresh.get(name) !== committed.get(name));
  const found = differing.map((name) => join(types, name));
  if (!readFileSync(freshDescriptors).equals(readFileSync(descriptors))) found.push(descriptors);
  if (!readFileSync(freshXds).equals(readFileSync(xdsDescriptors))) found.push(xdsDescriptors);
  return found;
}

if (argv.includes("--check")) {
  const scratch = mkdtempSync(join(tmpdir(), "watch-fanout-generate-"));
  try {
    const freshTypes = join(scratch, "types");
    const freshDescriptors = join(scratch, "descriptors.binpb");
    const freshXds = join(scratch, "xds.binpb");
    generate(freshTypes, freshDescriptors);
    generateXds(freshXds);
    const stale = differences(freshTypes, freshDescriptors, freshXds);
    if (stale.length > 0) {
      stderr.write(`Not current with the protos; run "npm run generate": ${stale.join(", ")}\n`);
      exit(1);
    }
  } finally {
    rmSync(scratch, { recursive: true });
  }
} else {
  rmSync(types, { recursive: true, force: true });
  generate(types, descriptors);
  generateXds(xdsDescriptors);
  stderr.write(`Wrote ${relative(".", types)}, ${descriptors} and ${xdsDescriptors}.\n`);
}
