import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** One script and one style sheet, which Python puts into every card it writes: no import, no second request. */
export default defineConfig({
  resolve: { alias: { "@": here("./src") } },
  publicDir: false,
  build: {
    outDir: here("../src/gpubloom/traincard/card/static"),
    emptyOutDir: true,
    target: "es2022",
    reportCompressedSize: true,
    lib: { entry: here("./src/card/main.ts"), formats: ["iife"], name: "TrainCard", fileName: () => "card.js", cssFileName: "card" },
  },
});
