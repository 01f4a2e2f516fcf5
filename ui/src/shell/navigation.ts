import { Activity, Database, FolderKanban, GitCompareArrows, LayoutDashboard, type LucideIcon, MessagesSquare, Package, ServerCog, Save, Settings, Sparkles, SquareTerminal } from "lucide-react";

type Destination = {
  to: "/dashboard" | "/projects" | "/jobs" | "/finetune" | "/script" | "/datasets" | "/models" | "/checkpoints" | "/compare" | "/playground" | "/providers" | "/settings";
  text: string;
  icon: LucideIcon;
};

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
    title: "Studio",
    items: [
      { to: "/finetune", text: "Fine-tune", icon: Sparkles },
      { to: "/script", text: "Run a script", icon: SquareTerminal },
      { to: "/datasets", text: "Datasets", icon: Database },
      { to: "/models", text: "Models", icon: Package },
      { to: "/checkpoints", text: "Checkpoints", icon: Save },
      { to: "/compare", text: "Compare runs", icon: GitCompareArrows },
      { to: "/playground", text: "Playground", icon: MessagesSquare },
    ],
  },
  {
    title: "Compute",
    items: [{ to: "/providers", text: "Providers", icon: ServerCog }],
  },
  {
    title: "Account",
    items: [{ to: "/settings", text: "Settings", icon: Settings }],
  },
];
