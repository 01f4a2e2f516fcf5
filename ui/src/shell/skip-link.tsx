/** Lets a keyboard pass over the navigation. Focus is moved by hand: a fragment in the address would confuse the router. */
export function SkipLink() {
  return (
    <a
      href="#content"
      onClick={(event) => {
        event.preventDefault();
        document.getElementById("content")?.focus();
      }}
      className="fixed top-2 left-2 z-[70] -translate-y-20 rounded-control bg-violet px-4 py-2 font-[560] text-white focus-visible:translate-y-0"
    >
      Skip to content
    </a>
  );
}
