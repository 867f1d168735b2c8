"""Words of the languages besides English in which people write their scripts, by what they say of a run."""

DONE_ALONE = (
    r"готово|fertig|terminado|terminé|listo|conclu[ií]do|pronto|finito|selesai|zakończono|hotovo|klaar|完成|完了|완료"
)
"""`Done.`, with nothing beside it."""

EPOCHS = r"эпох[аиу]?|epoche|epoca|[ée]poque|época|epok[ai]?|epocha|エポック|에포크|에폭|轮次|轮数"
STEPS = (
    r"шаг|итераци[яию]|schritt|[ée]tape|itération|paso|iteración|passo|iterazione|iteração|krok|iteracja|adım|"
    r"bước|langkah|ステップ|스텝|步骤|步数|迭代"
)
ROUNDS = r"раунд|runde|tour|ronda|rodada|runda|dönem|tur|vòng|putaran|ラウンド|라운드"

ORDINAL = r"(?:轮|步|代|エポック|ステップ|에포크|에폭|스텝|단계)"
"""What Chinese, Japanese and Korean put behind the number of a step: `第 3/10 轮`."""

OF_A_STEP = (
    rf"\b(?:{EPOCHS}|{STEPS}|{ROUNDS})\W{{0,4}}\d|\d\s?{ORDINAL}|"
    rf"\d{{1,9}}\.\s?(?:{EPOCHS}|{STEPS}|{ROUNDS})\b"
)
"""One epoch, step or round of many."""

_THINGS = (
    r"检查点|断点|模型|权重|配置|缓存|数据集?|모델|체크포인트|데이터|モデル|データ|チェックポイント|модел|данн|контрольн|modell|modèle|"
    r"modelo|daten|données|datos|dados|dati|zwischenst|kontrollpunkt|punto de (?:control|guardado)|"
    r"points? de contrôle|mô hình|dữ liệu|điểm kiểm|modelu|dane|danych|veri\b|"
    r"checkpoint|ckpt|step|epoch"
)
OF_AN_ACT = (
    r"下载|加载|初始化|预处理|准备|安装|导入|启动|创建|分配|注册|登录|挂载|克隆|拉取|复制|拷贝|同步|激活|连接|切换|预热|编译|校验|解压|"
    r"読み込み|ロード|初期化|前処理|準備|接続|インストール|設定|起動|作成|登録|ダウンロード|コンパイル|"
    r"로딩|로드|불러오|초기화|전처리|준비|연결|설치|설정|시작|생성|등록|다운로드|컴파일|"
    r"загру[зж]|инициализ|предобработ|подготов|подключ|установ|запуск|скачив|компил|чтени|"
    r"\b(?:lade|laden|lädt)\b|geladen|ladevorg|einlesen|initialis|inizializz|inicializ|inicjaliz|vorverarb|vorbereit|verbind|herunter|"
    r"chargement|chargée?s?\b|prétrait|prépar|connexion|télécharg|"
    r"\bcarga\b|cargad|cargand|preproces|prepara|conexión|descarg|instala|"
    r"carrega|pré-?process|conexão|baixad|"
    r"caric|scaric|pre-?elabor|connession|installa|"
    r"yükle|hazırl|hazirl|indir|başlat|ön işle|bağlan|kurul|"
    r"tải|đọc|chuẩn bị|khởi tạo|tiền xử lý|kết nối|cài đặt|"
    r"wczyt|ładow|załad|przygot|pobier|pobran|przetwarzanie wst|połącz|instal|"
    r"načít|načt|načten|příprav|stahov|stažen|předzprac|připoj|"
    r"memuat|dimuat|unduh|inisialisasi|persiap|prapem|pra-pem|sambung|siap"
)

OF_A_PART = rf"{_THINGS}|{OF_AN_ACT}|{OF_A_STEP}"
"""What comes before the work or happens within it; its end is not the run's."""

DONE = (
    r"已(?:全部)?(?:保存|完成|结束|导出|写入)|(?:处理|运行|执行|评估|测试|导出|任务|计算|全部|推理)(?:全部)?(?:完成|结束|成功|完毕)|"
    r"완료|저장(?:됨|했|되었|하였)|종료(?:됨|했|되었)|完了|(?:終了|保存)しました|"
    r"\b(?:готово|заверш[её]н[оаы]?|сохран[её]н[оаы]?|fertig|abgeschlossen|beendet|gespeichert|termin[ée]e?s?|"
    r"enregistr[ée]e?s?|terminado|completado|finalizado|guardado|completato|terminato|salvato|"
    r"selesai|tamamland[ıi]|hoàn (?:thành|tất)|conclu[ií]d[oa]|zakończono|ukończono|dokončeno)\b"
)
"""Any work that is done."""
