import { useLocation } from "@tanstack/react-router";
import { useEffect, useRef } from "react";

/** After a change of page the keyboard continues in the new page, not at the link that led there. */
export function useFocusOnNavigation() {
  const { pathname } = useLocation();
  const content = useRef<HTMLElement>(null);
  const shown = useRef(pathname);

  useEffect(() => {
    if (shown.current === pathname) return;
    shown.current = pathname;
    content.current?.focus({ preventScroll: true });
  }, [pathname]);

  return content;
}
