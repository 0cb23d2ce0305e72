/**
 * Bundles the script of the live page, with the client library, into `build/live.js` of its folder, which is not committed:
 * `node scripts/live-page.ts` for a checkout; `npm run build` does it for the package.
 */
import {
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { bundler } from "./bundler.ts";

const checkout = join(import.meta.dirname, "..");
const folder = join(checkout, "src/server/admin/live");

/** Makes the script, unless it is newer than its sources. Rejects if the bundler warns of something. */
export async function makeLivePage(): Promise<void> {
  const target = join(folder, "build/live.js");
  const sources = globSync(["src/**/*.ts", "src/server/admin/live/page/*.js"], { cwd: checkout });
  const newest = Math.max(...sources.map((file) => statSync(join(checkout, file)).mtimeMs));
  if (existsSync(target) && statSync(target).mtimeMs > newest) return;
  const warnings: string[] = [];
  const bundle = await bundler().rolldown({
    ...{ input: join(folder, "page/live.js"), platform: "browser", cwd: checkout },
    plugins: [withoutFiles],
    onLog: (_: string, { message }: { readonly message: string }) => warnings.push(message),
  });
  const { output } = await bundle.generate({ format: "esm", minify: true, codeSplitting: false });
  await bundle.close();
  const [script, ...others] = output;
  if (warnings.length > 0 || others.length > 0 || script?.code === undefined) {
    throw new Error(`The live page can't be bundled: ${warnings.join("\n")}`);
  }
  mkdirSync(join(folder, "build"), { recursive: true });
  const unfinished = `${target}.${process.pid}`;
  writeFileSync(unfinished, script.code);
  // Another process may read it.
  renameSync(unfinished, target);
}

/** Leaves out the files of kept states, as `browser` in the package of the client does. */
export const withoutFiles = {
  name: "without-files",
  load: (id: string): string | undefined => {
    const manifest = readFileSync(join(checkout, "src/client/package.json"), "utf8");
    const { browser } = JSON.parse(manifest) as { readonly browser: Record<string, false> };
    const replaced = Object.keys(browser).map((path) =>
      path.replace("./dist/", join(checkout, "src/")).replace(/\.js$/, ".ts"),
    );
    return replaced.includes(id) ? "export {};" : undefined;
  },
};

if (import.meta.main) await makeLivePage();
