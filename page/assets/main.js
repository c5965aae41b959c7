const PAGES = { plan: planPage, layout: layoutPage, batch: batchPage, check: checkPage };
document.getElementById("page").replaceChildren(
  h("header", { class: "top" }, h("h1", {}, document.title), h("span", { class: "made-by" }, `reshard${DATA.version ? " " + DATA.version : ""}`), themeSwitch()),
  PAGES[DATA.kind](DATA));
