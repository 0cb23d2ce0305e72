/** No mutant is active while a file of tests loads: Stryker's setup switches it on before the first test of the file. */
Reflect.set(Reflect.get(globalThis, "__stryker__") ?? {}, "activeMutant", undefined);
