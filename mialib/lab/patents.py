"""Generated Chinese patent texts: the lab's stand-in for the PatentMIA benchmark.

No real patent is copied. A small grammar of abstracts, claims, and embodiments is filled with words of
jieba's lexicon, so a text has a patent's form, and enough chance in it to be memorized. In the templates,
    [a|b|c]  is one of the alternatives, evenly;
    {6~60}   is a number between the bounds, with their decimals, and {6-60} a range inside them;
    {part}   is a word of that class, drawn by its frequency in Chinese;
    {crop*}  is the one word of that class that the text is about;
    {new}    introduces a component, {last} is the newest one known, and {old} is another one known;
    {dose}   is every ingredient so far, each with an exact amount.
"""

import re
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import jieba
import numpy as np

# Words of the lexicon that its tags cannot tell apart, so they are grouped by hand.
WORDS = {
    "motion": "旋转 升降 滑动 移动 传动 驱动 联动 转动 滚动 摆动 翻转 折叠 伸缩 缓冲 减震 防滑 密封 限位 定位 固定 "
    "支撑 悬挂 牵引 拉伸 提升 夹紧 锁定 调节 连接 导向 弹性 弧形 环形 锥形 辅助 活动 平衡 承重 加固 铰接 磁性 耐磨 "
    "绝缘 防护 复位 转向 制动 电动 手动 液压 气动 空心",
    "process": "加热 冷却 散热 保温 干燥 烘干 除尘 除湿 过滤 筛选 筛分 分离 粉碎 破碎 研磨 切割 切削 剪切 搅拌 混合 "
    "喷洒 喷涂 清洗 冲洗 冲压 挤压 压缩 输送 传送 送料 卸料 收集 储存 检测 测量 焊接 抛光 打磨 消毒 灭菌 净化 排水 "
    "通风 发酵 蒸馏 浓缩 沉淀 吸附 包装 印刷 装配",
    "vessel": "箱 罐 筒 槽 池 塔 仓 室 炉 泵 管道 装置 机构 组件 容器 设备",
    "part": "齿轮 滑轮 转轴 主轴 轴承 螺栓 螺杆 螺钉 支架 机架 托架 吊架 底座 支座 底板 隔板 挡板 侧板 顶板 盖板 面板 "
    "压板 夹板 滑板 踏板 基板 底盘 托盘 转盘 导管 软管 套管 油管 气管 弹簧 连杆 拉杆 推杆 横杆 撑杆 吊杆 摇臂 吊臂 "
    "手柄 把手 滚轮 飞轮 叶轮 链轮 砂轮 导轮 皮带 链条 电机 气缸 油缸 活塞 阀门 滑阀 气泵 油泵 油箱 机箱 喷嘴 喷头 "
    "接头 夹头 钻头 刀片 刀架 滤网 外壳 护罩 护套 套筒 滚筒 卷筒 套环 吊环 垫圈 垫片 滑块 凹槽 插槽 插座 导轨 立柱 "
    "横梁 框架 铰链 挂钩 曲轴 凸轮 钢板 钢架",
    "circuit": "信号 滤波 稳压 整流 采样 调制 放大 振荡 驱动 控制 检测 保护 隔离 通信 显示 存储 时钟 复位 供电 充电 "
    "放电 感应 温度 电流 电压 频率 功率 脉冲 高频 低频 射频 微波 红外 超声波 数字 模拟 无线 补偿 触发 计时 报警 定时 "
    "耦合 反馈 解码 照明 变频 降压 升压 开关 缓存 校准 触摸 光电",
    "chip": "电路 模块 单元 芯片 传感器 电阻 电容 二极管 晶体管 变压器 继电器 放大器 处理器 控制器 存储器 接口 天线 "
    "线圈 电源 电感 寄存器 计数器 编码器 电极 端子 总线 探头",
    "subject": "图像 语音 文本 视频 用户 订单 流量 温度 轨迹 日志 交易 车辆 设备 故障 价格 位置 路径 负荷 气象 水位 "
    "客户 商品 网页 邮件 账户 网络 节点 任务 资源 行为 情感 主题 实体 关系 事件 病历 影像 指纹 姿态 动作 风险 信用 "
    "库存 物流 航班 交通 电量 振动 频谱 遥感 地形 土壤 基因 分子 课程 新闻 评论",
    "record": "数据 特征 序列 向量 矩阵 集合 列表 编码 参数 指标 标签 样本 曲线 索引 图谱 权重 分数 模板 摘要",
    "method": "神经网络 遗传算法 决策树 贝叶斯 模糊控制 有限元 线性规划 深度学习 强化学习 小波变换",
    "task": "识别 预测 检测 推荐 压缩 调度 加密 分类 检索 匹配 评估 定位 跟踪 分割 校正 诊断 预警 优化",
    "product": "涂料 胶粘剂 油墨 薄膜 复合材料 催化剂 树脂 橡胶 塑料 纤维 陶瓷 玻璃 水泥 混凝土 清洗剂 润滑油 电解液",
    "quality": "耐高温 高强度 阻燃 抗菌 环保 水性 导电 导热 耐磨 防腐 低成本 透明 防水 轻质 隔热 无毒 多孔",
    "material": "不锈钢 铝合金 橡胶 塑料 陶瓷 碳钢 铸铁 黄铜 尼龙 玻璃钢 硅胶 钛合金 聚乙烯 聚丙烯 碳纤维 石墨",
    "herb": "黄芪 茯苓 甘草 白术 党参 当归 川芎 白芍 赤芍 丹参 桃仁 红花 半夏 枸杞 山药 金银花 连翘 板蓝根 薄荷 桔梗 "
    "柴胡 黄芩 黄连 黄柏 栀子 麦冬 五味子 酸枣仁 远志 菖蒲 杜仲 牛膝 菊花 山楂 麦芽 木香 砂仁 厚朴 苍术 防风 荆芥 "
    "葛根 升麻 泽泻 车前子 益母草 鱼腥草 蒲公英 夏枯草 三七 天麻 阿胶 大枣 生姜 肉桂 细辛 何首乌 女贞子 地黄 玄参 "
    "沙参 百合 玉竹 苦参 独活 羌活 秦艽 藿香 佩兰 牡蛎 知母",
    "illness": "高血压 糖尿病 失眠 感冒 咳嗽 胃炎 关节炎 湿疹 便秘 腹泻 鼻炎 肝炎 贫血 痛经 哮喘 颈椎病 肺炎 痛风",
    "crop": "水稻 小麦 玉米 大豆 花生 油菜 棉花 马铃薯 番茄 黄瓜 辣椒 茄子 白菜 萝卜 草莓 葡萄 苹果 柑橘 茶树 烟草 "
    "西瓜 甘蔗 香菇 苜蓿 大蒜 芹菜 菠菜 高粱 荞麦 绿豆 芝麻 荔枝 芒果 香蕉 核桃 板栗",
    "manure": "豆粕 鱼粉 麸皮 秸秆 鸡粪 牛粪 草木灰 腐殖酸 尿素 过磷酸钙 稻壳 木屑 泥炭 骨粉 豆饼 花生壳 米糠 酒糟 "
    "海藻 石灰 磷矿粉 氯化钾 硫酸铵 硝酸铵 酵母 乳酸菌 羊粪 猪粪 锯末 甘蔗渣 玉米芯 蛭石 珍珠岩 膨润土 沸石 红糖 糖蜜 "
    "氨基酸 硫酸镁 硼砂 硫酸锌 棉籽 蚕沙",
    "site": "钢厂 车站 码头 仓库 水库 果园 矿井 隧道 桥梁 温室 牧场 渔场 电厂 机场 油田 农田 港口 船舶 铁路 公路 食堂 "
    "医院 车间 厨房 地铁 水电站 养殖场 纺织厂 粮库 大棚 工地 机房 茶园 地下室 火电厂 实验室",
}
# Classes found in the lexicon by rule: tags, the characters before the last ("" for any), the last characters,
# the lengths, and the least frequency.
RULES: dict[str, tuple[str, str, str, tuple[int, ...], int]] = {
    "chemical": (
        "n nz",
        "氧化硫硝盐柠檬碳醋乙丙丁甲苯氯硅磷硼聚烯酰树脂硬环酸氨钠钾钙镁锌铝铁钛锰氢氟二三纤维木质活性分散增塑稠"
        "稳定抗固消泡润滑交联粘合着色水杨",
        "酸盐醇酯胺酮醛烯烷剂碱钠钾钙锌镁铝脂醚酚炭",
        (3, 4, 5),
        4,
    ),
    "place": ("ns", "", "县市", (3,), 30),
    "object": ("n", "", "花草树木山河湖海江桥路车船书画歌舞茶酒菜果饭衣鞋灯窗桌床笔石玉马牛羊鸟鱼虫", (2,), 60),
}
UNWANTED = {"自治县", "大都市", "大城市", "纽约市", "北平市", "水合氯醛", "环磷酰胺", "苯丙酮", "联苯胺", "破鞋"}

# A sector's templates, by kind. Of a title, the claims repeat what comes before "~".
MECHANICAL = (
    "field: [机械加工|物料输送|建筑施工|包装机械|印刷设备|环保设备|矿山机械|纺织机械|食品机械|水利工程]",
    "name: [{motion}{part}|{motion}{part}|{process}{vessel}]",
    "numeral: （#）",
    "title: 用于{site*}的{process*}[装置|设备|机构]",
    "title: 带有{motion}{part}的[小型|节能|低噪声|自动]{process*}[装置|设备|机]",
    "title: {motion}{material}{part}[结构|组件|总成]",
    "opening: 包括{new}、{new}和{new}，所述{old}[固定|活动|可拆卸地]安装在所述{old}的[一侧|顶部|内部|外壁]",
    "opening: 包括{new}以及位于所述{last}[上|内|下方|两侧]的{new}，所述{last}通过{new}与所述{old}[相连|活动连接]",
    "opening: [主要|]由{new}、{new}、{new}和{new}组成，所述{last}位于所述{old}与所述{old}之间",
    "detail: 所述{old}的[一端|底部|内壁|顶面]设置有{new}，所述{last}与所述{old}[转动连接|滑动配合|铰接]",
    "detail: 所述{last}采用{material}制成，[厚度|壁厚]为{0.30~9.90}mm，并[套设|卡接|焊接]在所述{old}上",
    "detail: 所述{old}[上|内|一侧]开设有[凹槽|通孔|滑道]，{new}[嵌设|滑动设置|可拆卸安装]于其中",
    "detail: 所述{last}的数量为[三|四|六|八]个，相邻两个所述{last}的间距为{15~480}mm",
    "detail: 还包括{new}，所述{last}的[输出端|上端]穿过所述{old}并与所述{old}[固定|传动]连接",
    "effect: 所述{old}与所述{old}相配合，[解决了|避免了]{process*}时[易卡死|振动大|密封不严]的问题",
    "effect: 结构[简单|紧凑]，{process*}效率提高{8~65}%，[延长了|提高了]所述{old}的使用寿命",
    "example: 如图{1~6}所示，所述{old}以{20~900}r/min的转速带动所述{last}转动，{process*}{2~50}min后停机",
    "example: 所述{old}的[外径|行程]为{40~950}mm，所述{old}选用{material}，在{place}某{site*}试用{2~18}个月",
)
ELECTRONIC = (
    "field: [电子电路|电力电子|无线通信|智能家居|仪器仪表|汽车电子|照明控制|电池管理|半导体器件]",
    "name: {circuit}{chip}",
    "numeral: （#）",
    "title: 基于{circuit}{chip}的{site*}[监测|报警|供电|控制]系统",
    "title: [低功耗|高精度|宽电压|抗干扰|多通道]{circuit}{chip}",
    "title: 具有{circuit}功能的[便携式|车载|手持式|嵌入式]{circuit}[装置|终端|仪]",
    "opening: 包括{new}、{new}和{new}，所述{old}的输出端与所述{last}的输入端[电连接|相连|耦接]",
    "opening: 包括依次[电连接|串联|通信连接]的{new}、{new}、{new}和{new}",
    "opening: 包括{new}以及与所述{last}[电连接|通信连接]的{new}和{new}，所述{old}设置在[壳体|屏蔽罩]内",
    "detail: 所述{last}的工作电压为{1.2~36.0}V，[静态|额定]电流为{5~900}mA，并由所述{old}[供电|控制|触发]",
    "detail: 还包括{new}，所述{last}[串联|并联|跨接]在所述{old}与所述{old}之间",
    "detail: 所述{old}通过{new}向所述{old}发送[中断|采样|复位]信号，[周期|脉宽|延时]为{2~800}ms",
    "detail: 所述{old}的[采样|截止|谐振]频率为{10-900}kHz，所述{last}的[阻值|阻抗]为{10~990}Ω",
    "detail: 所述{old}包括{new}，所述{last}的[一端|控制端|信号端]与所述{old}的[接地端|正极|输入端]连接",
    "effect: 通过所述{old}对所述{old}进行{circuit}，[功耗降低|误差减小|响应时间缩短]{6~70}%",
    "effect: 由于设置了所述{old}，[提高了|改善了]{circuit}的[精度|稳定性|可靠性]，适用于{site*}",
    "example: 如图{1~7}所示，上电{5~950}ms后，所述{old}输出{1.0~24.0}V的{circuit}信号，所述{old}[导通|启动|休眠]",
    "example: 样机在{place}某{site*}运行{100~2900}h，所述{old}的误差为{0.02~3.90}%，温度不超过{45~85}℃",
)
SOFTWARE = (
    "field: [人工智能|数据处理|计算机视觉|自然语言处理|信息安全|智能交通|电力调度|电子商务|医疗信息]",
    "name: {subject}{record}",
    "title: 基于{method*}的{subject*}{task*}方法~[及系统|及装置|、设备和存储介质|]",
    "title: 面向{site*}的{subject*}{record}{task*}方法~[及系统|、装置及电子设备|]",
    "title: {subject*}与{subject}联合{task*}的方法~[及存储介质|和系统|]",
    "opening: 包括步骤S1：[采集|获取]{new}和{new}；步骤S2：对所述{last}进行[归一化|平滑]，得到{new}；"
    "步骤S3：将所述{last}输入{method*}模型，输出{subject*}{task*}结果",
    "opening: 包括步骤S1：[接收|查询]{new}；步骤S2：从所述{last}中[提取|筛选]{new}；步骤S3：计算{new}，"
    "并与所述{old}[拼接|比较|关联]",
    "opening: 包括：[获取|构建]{new}、{new}和{new}；计算所述{last}与所述{old}的[相似度|距离|互信息]；"
    "据此[给出|更新]{subject*}{task*}结果",
    "detail: 所述{old}[包括|至少包括]{subject}[编号|类别|时间戳|长度]和{new}，所述{last}的维度为{16~1024}",
    "detail: {method*}的[学习率|正则系数]为{0.001~0.090}，迭代{20~900}次，以所述{old}作为[输入|监督信号]",
    "detail: 当所述{old}[大于|不低于]{0.11~0.98}时，[删除|更新|合并]所述{old}，否则保留所述{last}",
    "detail: 还包括对{new}进行[校验|脱敏|去重|对齐]的步骤，所述{last}的时间窗口为{2~90}s",
    "detail: 所述{last}与所述{old}按{0.11~0.89}的权重[融合|相加]，得到{new}，并[写入数据库|发送至服务器]",
    "effect: {subject*}{task*}的[准确率|召回率|实时性]得到提升，[误差|耗时|存储开销]降低{5~70}%",
    "effect: 通过所述{old}与所述{old}的[融合|比对]，解决了{subject*}{record}[缺失|冗余|滞后]的问题",
    "example: 用户输入“{object}”后，{3~990}ms内返回“{object}”“{object}”等{4~60}项结果，并更新所述{old}",
    "example: 以{place}{site*}的{300~9900}条{subject*}{record}为例，所述{old}中“{object}”与“{object}”的关联度"
    "为{0.11~0.99}",
)
RECIPE = (
    "unit: 份",
    "opening: 由以下[质量份|重量份]的原料制成：{new}、{new}、{new}和{new}",
    "opening: 包括如下[质量份|重量份]的组分：{new}、{new}、{new}、{new}以及{new}",
)
CHEMICAL = (
    *RECIPE,
    "field: [高分子材料|精细化工|功能材料|新材料|材料化学|化工|复合材料|纳米材料]",
    "name: {chemical}",
    "title: {site*}用{quality}{product*}~及其制备方法",
    "title: 含有{chemical}的{quality}{product*}~及其[制备方法|应用|生产工艺]",
    "detail: 将所述{old}与所述{old}[混合|共混]，升温至{50-180}℃，搅拌{15-240}min，再加入所述{last}",
    "detail: 所述{old}的[粒径|平均粒径]为{2-90}μm，所述{old}的[纯度|含量]不低于{85.1~99.9}%",
    "detail: 还包括{new}，所述{last}与所述{old}的[质量比|摩尔比]为1:{1.2~9.8}",
    "detail: 所述{old}在{60-160}℃下[干燥|煅烧|活化]{2~24}h，然后[研磨|过筛]至{80~600}目",
    "detail: 将所述{old}溶于[去离子水|乙醇|丙酮]中，[超声|搅拌]{5~90}min，所得[混合液|浆料]与所述{last}共混",
    "effect: 所得{product*}的[拉伸强度|附着力]为{2.1~68.0}MPa，[耐热性|耐水性|稳定性]好",
    "effect: 所述{old}与所述{old}协同作用，[改善了|提高了]产品的[韧性|分散性|导热性|耐候性]",
    "example: 称取{dose}，在{55~175}℃下反应{0.5~12.0}h，冷却后[过滤|洗涤|造粒]，测得pH值为{4.10~9.50}",
    "example: 取{dose}，以{80~950}r/min搅拌{5~90}min，[静置|老化|烘干]{2~36}h，即得{product*}样品",
)
AGRICULTURAL = (
    *RECIPE,
    "field: [肥料|土壤改良|设施农业|作物栽培|农业废弃物利用|无土栽培|生态种植|果蔬栽培]",
    "name: {manure}",
    "title: {crop*}专用[有机肥|复合肥|缓释肥|生物肥]~及其制备方法",
    "title: [促进{crop*}生根|防治{crop*}病害|提高{crop*}产量]的[栽培基质|营养土|叶面肥]~及其[应用|制备方法]",
    "detail: 所述{old}与所述{old}堆沤发酵{7~60}天，[含水率|湿度]控制在{30-65}%，每{2~9}天翻堆一次",
    "detail: 还包括{new}，所述{last}经[粉碎|晾晒|腐熟]后与所述{old}[混匀|分层铺设]，[粒度|厚度]为{2~40}mm",
    "detail: 在{crop*}[播种前|苗期|花期|采收后]{3~40}天[沟施|穴施|撒施]，每亩用量为{15-300}kg",
    "detail: 将所述{old}在{45-75}℃下[堆制|烘干]{10~96}h，冷却后接种[芽孢杆菌|木霉菌]，再拌入所述{last}",
    "effect: [施用后|使用后]{crop*}增产{5~45}%，[土壤板结|病害发生率|化肥用量]明显降低",
    "effect: 充分利用所述{old}与所述{old}，[提高土壤肥力|减少环境污染]，{crop*}[品质好|抗逆性强|成活率高]",
    "example: 于{place}选取{2~60}亩{crop*}试验田，按{dose}配制，{20~180}天后测得亩产{210~4900}kg",
    "example: 称取{dose}，混匀后用于{place}的{crop*}育苗，出苗率为{80.1~99.6}%，株高为{6.1~88.0}cm",
)
MEDICAL = (
    *RECIPE,
    "field: [中药制剂|保健食品|外用制剂|药物制剂|中药提取]",
    "name: {herb}",
    "title: 治疗{illness*}的[中药组合物|中药制剂|颗粒剂|丸剂|胶囊]~及其制备方法",
    "title: [辅助改善|预防]{illness*}的{herb}{herb}[口服液|膏方|茶饮|贴膏]~及其[制备方法|应用]",
    "detail: 将所述{old}与所述{old}加水[煎煮|浸泡]{2~4}次，每次{30-150}min，浓缩至相对密度{1.05-1.38}",
    "detail: 还包括{new}，所述{last}经[炒制|酒制|蜜制|醋制]后与所述{old}[共同粉碎|混合]，过{60~300}目筛",
    "detail: 所述{old}用{50~95}%乙醇[浸泡|渗漉|提取]{2~48}h，所述{last}在{40-80}℃下干燥后研末",
    "detail: 每日服用{2~4}次，每次{2.5~15.0}g，{5~30}天为一个疗程，所述{old}可[增至|减至]{3~30}g",
    "effect: 所述{old}[益气|活血|清热]，所述{old}[化痰|止痛|安神|祛湿]，对{illness*}有效率为{80.1~97.9}%",
    "effect: 所述{old}与所述{old}[配伍|合用]，[副作用小|起效快|复发率低]，兼治{illness*}",
    "example: 患者[王|李|张|刘|陈|杨|赵|黄|周|吴]某，[男|女]，{18~82}岁，{place}人，患{illness*}；取{dose}，"
    "水煎服，{5~60}天后[痊愈|好转]",
    "example: 称取{dose}，加{4~14}倍量的水煎煮，[浓缩|过滤|灭菌]后制得成品；{40~390}例{illness*}患者服用后好转",
)
SECTORS = (MECHANICAL, ELECTRONIC, SOFTWARE, CHEMICAL, AGRICULTURAL, MEDICAL)
# Half of the abstracts leave the structure to the claims, for shorter texts.
ABSTRACTS = (
    "本发明公开了一种{title}，属于{field}技术领域，{opening}。{effect}。",
    "本发明涉及{field}技术领域，[具体|尤其]涉及一种{title}，{opening}；{effect}。",
    "发明名称：一种{title}。技术领域：{field}。本发明[公开|提供]了一种{title}。",
    "本发明公开了一种{title}，[属于|涉及]{field}技术领域。",
)
CLAIM = "{number}. [根据|如]权利要求{base}所述的{claimed}，其特征[|还]在于[，|：]{detail}。"

SPREAD = 0.5  # words are drawn by frequency to this power: common ones recur, and rare ones still come up
UNLISTED = 100  # the frequency given to the few newer terms that the lexicon lacks
CHARACTERS_PER_WORD = 2.0  # more than any text has by jieba's count, so that none comes out short
MOST_CLAIMS = 8  # longer texts grow by embodiments, which introduce nothing, so names never run out

T = TypeVar("T")


@dataclass
class _Draft:
    """A text being written: the words it is about, and its components with their amounts."""

    rng: np.random.Generator
    sector: Sequence[str]
    topics: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    amounts: list[tuple[int, int]] = field(default_factory=list)


def generate_patents(n: int, *, seed: int, min_words: int = 128) -> list[str]:
    """n distinct Chinese patent texts of six sectors, each at least min_words jieba words long.

    Text i depends on the seed, i, min_words, and jieba's lexicon, not on n.
    """
    if n < 0:
        raise ValueError(f"n must be at least 0, got {n}")
    if min_words < 1:
        raise ValueError(f"min_words must be at least 1, got {min_words}")
    texts = [_patent(np.random.default_rng([seed, index]), min_words) for index in range(n)]
    if len(set(texts)) < n:  # each has some hundred draws, so this is not to be expected
        raise RuntimeError(f"two of the {n} texts of seed {seed} are equal")
    return texts


def _patent(rng: np.random.Generator, min_words: int) -> str:
    """One text: abstract, claims, embodiments."""
    draft = _Draft(rng, _choose(rng, SECTORS))
    # Half of the devices have reference numerals, which begin with the claims.
    numeral = _choose(rng, ["", *_templates(draft, "numeral")])
    chain: list[int] = []  # the components that a claim and those it refers to have introduced
    kinds = ("title", "field", "opening", "effect")
    phrases = {kind: _expand(_choose(rng, _templates(draft, kind)), draft, chain) for kind in kinds}
    claimed, _, rest = phrases["title"].partition("~")
    phrases["title"] = claimed + rest
    text = _named(_alternatives(rng, _choose(rng, ABSTRACTS)).format(**phrases), draft, "")
    text += _named(f"权利要求书：1. 一种{claimed}，其特征在于，{phrases['opening']}。", draft, numeral)
    chains = [chain]
    details = rng.permutation(_templates(draft, "detail")).tolist()
    enough = min_words * CHARACTERS_PER_WORD
    while len(chains) < 2 or (len(chains) < MOST_CLAIMS and len(text) < 0.75 * enough):
        base = _below(rng, len(chains))
        chain = list(chains[base])
        detail = _expand(details[len(chains) % len(details)], draft, chain)
        chains.append(chain)
        claim = CLAIM.format(number=len(chains), base=base + 1, claimed=claimed, detail=detail)
        text += _named(_alternatives(rng, claim), draft, numeral)
    examples = 0
    while examples == 0 or len(text) < enough:
        examples += 1
        example = _expand(_choose(rng, _templates(draft, "example")), draft, list(range(len(draft.names))))
        text += _named(f"实施例{examples}：{example}。", draft, numeral)
    return text


def _expand(template: str, draft: _Draft, chain: list[int]) -> str:
    """The template filled in; a component stands as "<index>", and the new ones join the chain."""
    rng = draft.rng
    used: set[int | str] = set()  # a sentence repeats no word and, while there are others, no component

    def fill(match: re.Match[str]) -> str:
        slot = match[1]
        if bounds := re.fullmatch(r"([\d.]+)([~-])([\d.]+)", slot):
            return _number(rng, *bounds.groups())
        if slot == "new":
            return _introduce(draft, chain)
        if slot == "last":
            return f"<{chain[-1]}>"
        if slot == "old":
            component = _choose(rng, [index for index in chain[:-1] if index not in used] or chain[:-1])
            used.add(component)
            return f"<{component}>"
        if slot == "dose":
            exact = [low + _below(rng, high - low + 1) for low, high in draft.amounts]
            return "、".join(f"<{index}>{amount}份" for index, amount in enumerate(exact))
        if slot in draft.topics:
            return draft.topics[slot]
        words, sums = _classes()[slot.removesuffix("*")]
        while (word := words[bisect(sums, rng.random() * sums[-1])])[:2] in used:
            pass
        used.add(word[:2])
        if slot.endswith("*"):
            draft.topics[slot] = word
        return word

    return re.sub(r"\{([^}]+)\}", fill, _alternatives(rng, template))


def _introduce(draft: _Draft, chain: list[int]) -> str:
    """A component of a new name, added to the draft and the chain; an ingredient comes with its amount."""
    while (name := _expand(_templates(draft, "name")[0], draft, chain)) in draft.names:
        pass
    low = 1 + _below(draft.rng, 40)
    high = low + 1 + _below(draft.rng, 15)
    chain.append(len(draft.names))
    draft.names.append(name)
    draft.amounts.append((low, high))
    return f"<{chain[-1]}>" + "".join(f"{low}-{high}{unit}" for unit in _templates(draft, "unit"))


def _named(text: str, draft: _Draft, numeral: str) -> str:
    """The text with its components' names, followed by reference numerals where their form is given."""

    def name(match: re.Match[str]) -> str:
        index = int(match[1])
        return draft.names[index] + numeral.replace("#", str(index + 1))

    return re.sub(r"<(\d+)>", name, text)


def _number(rng: np.random.Generator, low: str, sign: str, high: str) -> str:
    """A number from low to high with low's decimals ("~"), or a range of two of them ("-")."""
    places = len(low.partition(".")[2])
    first, last = round(float(low) * 10**places), round(float(high) * 10**places)
    start = first + _below(rng, (last - first) // (1 if sign == "~" else 2) + 1)
    drawn = [start] if sign == "~" else [start, start + 1 + _below(rng, last - start)]
    return "-".join(f"{value / 10**places:.{places}f}" for value in drawn)


def _alternatives(rng: np.random.Generator, template: str) -> str:
    """The template with each "[a|b|c]" replaced by one of its alternatives."""
    return re.sub(r"\[([^]]*)\]", lambda match: _choose(rng, match[1].split("|")), template)


def _choose(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, evenly."""
    return options[_below(rng, len(options))]


def _below(rng: np.random.Generator, bound: int) -> int:
    """A whole number from 0 to bound - 1, evenly; much faster than rng.integers for one number."""
    return int(rng.random() * bound)


def _templates(draft: _Draft, kind: str) -> list[str]:
    """The templates of that kind in the draft's sector."""
    return [line.removeprefix(f"{kind}: ") for line in draft.sector if line.startswith(f"{kind}: ")]


@cache
def _classes() -> dict[str, tuple[list[str], list[float]]]:
    """Each class's words, with the running sum of their weights."""
    lines = (Path(jieba.__file__).parent / "dict.txt").read_text(encoding="utf-8").splitlines()
    entries = [(word, int(count), tag) for word, count, tag in (line.split(" ") for line in lines)]
    words = {name: listed.split() for name, listed in WORDS.items()}
    for name, (tags, body, ends, lengths, least) in RULES.items():
        words[name] = [
            word
            for word, count, tag in entries
            if count >= least and tag in tags.split() and len(word) in lengths and word[-1] in ends
            if word not in UNWANTED and (not body or set(word[:-1]) <= set(body))
        ]
    counts = {word: count for word, count, _ in entries}
    return {
        name: (found, list(accumulate(counts.get(word, UNLISTED) ** SPREAD for word in found)))
        for name, found in words.items()
    }
