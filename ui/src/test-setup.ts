import { afterAll, vi } from "vitest";

// One process runs many files, because loading React and making a page for each takes longer than their tests.
// So that no file finds what another left, the page is emptied after each and the app's modules are loaded anew.
afterAll(async () => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  if (typeof document !== "undefined") {
    const [{ cleanup, configure }, { toast }] = await Promise.all([import("@testing-library/react"), import("sonner")]);
    cleanup();
    toast.dismiss();
    configure({ asyncUtilTimeout: 1_000 });
    document.body.replaceChildren();
    localStorage.clear();
    sessionStorage.clear();
    history.replaceState(null, "", "/");
  }
  vi.resetModules();
});
