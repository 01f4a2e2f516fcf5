const HOME = "/dashboard";

/**
 * Where to go after signing in. `next` comes from the address bar, so anybody can put anything there:
 * only a path of this site is followed, or the page would lend its name to somebody else's.
 */
export function safeNextPath(next: string | undefined): string {
  if (!next?.startsWith("/") || hasControlCharacter(next)) return HOME;
  let target: URL;
  try {
    // Parsing as the browser does catches "//host", "/\host" and every other way to write an origin.
    target = new URL(next, window.location.origin);
  } catch {
    return HOME;
  }
  if (target.origin !== window.location.origin) return HOME;
  const path = target.pathname;
  if (path.startsWith("//") || path === "/auth" || path.startsWith("/auth/") || path.startsWith("/api/")) return HOME;
  return path + target.search + target.hash;
}

function hasControlCharacter(text: string): boolean {
  // Browsers silently drop tabs and line ends inside addresses, which would hide "/\t/host" from the check above.
  return Array.from(text).some((character) => character < " " || character === "\u007f");
}
