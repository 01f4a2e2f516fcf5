import { Activity, FolderKanban, LayoutDashboard, type LucideIcon, Settings } from "lucide-react";

type Destination = { to: "/dashboard" | "/projects" | "/jobs" | "/settings"; text: string; icon: LucideIcon };

/** The rail, in order. A group without a title stands at the top; a page joins its group when it exists. */
export const navigation: { title: string | null; items: Destination[] }[] = [
  {
    title: null,
    items: [
      { to: "/dashboard", text: "Dashboard", icon: LayoutDashboard },
      { to: "/projects", text: "Projects", icon: FolderKanban },
      { to: "/jobs", text: "Training jobs", icon: Activity },
    ],
  },
  {
    title: "Account",
    items: [{ to: "/settings", text: "Settings", icon: Settings }],
  },
];
