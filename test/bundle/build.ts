/**
 * Bundles the command with all that it imports into the folder that is its only argument: `test/bundle/command.ts` runs
 * it. Modules have the address and the folder of their sources, so that the files that they read are found.
 */
import { dirname } from "node:path";
import { argv } from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { bundler } from "../../scripts/bundler.ts";

/** The modules that run a script next to them: it is next to them in the bundle, too. */
const scripts = /\/(?:workers|parse-policy-in-thread)\.ts$/;

const places = {
  name: "places",
  transform(source: string, id: string): string {
    if (scripts.test(id)) return source;
    const url = JSON.stringify(pathToFileURL(id).href);
    const placed = source.replaceAll("import.meta.url", url);
    // Only CommonJS modules have these names.
    if (!id.includes("/node_modules/")) return placed;
    return placed
      .replaceAll("__dirname", JSON.stringify(dirname(id)))
      .replaceAll("__filename", JSON.stringify(id));
  },
};

const [, , folder] = argv;
if (folder === undefined) throw new Error("The folder of the bundle is missing.");
const bundle = await bundler().rolldown({
  input: ["cli/main.ts", "cli/serve/worker-main.ts", "config/policy-worker.ts"].map((path) =>
    fileURLToPath(new URL(`../../src/${path}`, import.meta.url)),
  ),
  platform: "node",
  plugins: [places],
  logLevel: "silent",
});
await bundle.write({ dir: folder, format: "esm" });
