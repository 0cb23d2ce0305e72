import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** The Chromium that CHROMIUM_BIN names, or that is installed; undefined without one. */
export function findChromium(): string | undefined {
  const { CHROMIUM_BIN, PATH = "" } = process.env;
  if (CHROMIUM_BIN !== undefined && CHROMIUM_BIN !== "") return CHROMIUM_BIN;
  const names = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
  const paths = PATH.split(delimiter).flatMap((folder) => names.map((name) => join(folder, name)));
  return paths.find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
