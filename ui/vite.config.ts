import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const { info } = JSON.parse(readFileSync(here("./openapi.json"), "utf8")) as { info: { version: string } };

/** The licence of the repository as a file of the app: the footer links to it. */
const licence: Plugin = {
  name: "licence",
  apply: "build",
  generateBundle() {
    this.emitFile({ type: "asset", fileName: "LICENSE.txt", source: readFileSync(here("../LICENSE"), "utf8") });
  },
};

export default defineConfig({
  plugins: [react(), tailwindcss(), licence],
  define: { APP_VERSION: JSON.stringify(info.version) },
  resolve: { alias: { "@": here("./src") } },
  build: {
    // The Python package serves this folder, so that one wheel holds the whole product.
    outDir: here("../src/gpubloom/server/web/static"),
    emptyOutDir: true,
    target: "es2022",
    // The served content security policy allows no data: fonts, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    proxy: { "/api": "http://127.0.0.1:8000" },
  },
  test: {
    // Tests that need a page say so in their first line; a page takes a second to set up.
    environment: "node",
    // src/test-setup.ts says what takes its place.
    isolate: false,
    setupFiles: ["src/test-setup.ts"],
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
    // Tests wait for what they wait for; this only bounds them on a busy machine.
    testTimeout: 30_000,
  },
});
