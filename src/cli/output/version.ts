import { readFileSync } from "node:fs";
import { z } from "zod";

const manifest = z.object({ version: z.string() });

/** The package's own version. package.json lies at the same distance from src/ and from dist/. */
export const version: string = manifest.parse(
  JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")),
).version;
